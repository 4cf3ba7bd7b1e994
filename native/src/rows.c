/* Copies of rows: by index, and dequantised from a weight table. */
#include <string.h>

#include "blocks.h"
#include "call.h"

static void take_rows(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const h3k_take_rows_args *a = context;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++)
        memcpy(a->y + row * a->columns, a->x + a->index[row] * a->columns, (size_t)a->columns * sizeof *a->y);
}

h3k_status h3k_take_rows(const h3k_take_rows_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->x == NULL || a->index == NULL ||
        a->y == NULL || a->rows < 0 || a->columns < 1)
        return H3K_BAD_ARGUMENT;
    for (int64_t i = 0; i < a->rows; i++)
        if (a->index[i] < 0 || a->index[i] >= a->x_rows)
            return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, h3k_rows_per_task(a->columns)), take_rows, a);
}

typedef struct {
    const h3k_embedding_args *args;
    h3k_weight table;
} lookup;

static void embedding_rows(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const lookup *l = context;
    const h3k_embedding_args *a = l->args;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++) {
        int64_t id = a->ids[row] - a->first_row;
        if (id >= 0 && id < a->table_rows)
            l->table.format->unpack(&l->table, id, 0, a->columns, a->y + row * a->columns);
    }
}

h3k_status h3k_embedding(const h3k_embedding_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->ids == NULL || a->table == NULL ||
        a->y == NULL || a->rows < 0 || a->columns < 1 || a->table_rows < 0)
        return H3K_BAD_ARGUMENT;
    lookup l = {.args = a, .table = {.format = h3k_format_of(a->format), .data = a->table, .k = a->columns}};
    l.table.scales = (h3k_scales){a->scales, a->scales_row, a->scale};
    if (l.table.format == NULL || a->columns % l.table.format->block_elements != 0 ||
        !h3k_scales_fit(l.table.format, a->scales, a->scales_row))
        return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, h3k_rows_per_task(a->columns)), embedding_rows, &l);
}
