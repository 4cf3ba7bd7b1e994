/* Rows of a table whose scales lie apart, dequantised. */
#include "blocks.h"
#include "call.h"

typedef struct {
    const h3k_scaled_embedding_args *args;
    h3k_unpack_scaled *unpack;
    h3k_scales scales;
} lookup;

static void embedding_rows(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const lookup *l = context;
    const h3k_scaled_embedding_args *a = l->args;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++) {
        int64_t id = a->ids[row] - a->first_row;
        if (id >= 0 && id < a->table_rows)
            l->unpack(a->table, &l->scales, a->columns, id, 0, a->columns, a->y + row * a->columns);
    }
}

static h3k_status embedding(const h3k_scaled_embedding_args *a, h3k_unpack_scaled *unpack, int64_t block)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->ids == NULL || a->table == NULL ||
        a->y == NULL || a->rows < 0 || a->columns < 1 || a->table_rows < 0 || a->scales_row < 0 || a->reserved != 0 ||
        a->columns % block != 0 || (a->scales == NULL && unpack == h3k_unpack_nvfp4))
        return H3K_BAD_ARGUMENT;
    lookup l = {.args = a, .unpack = unpack, .scales = {a->scales, a->scales_row, a->scale}};
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, h3k_rows_per_task(a->columns)), embedding_rows, &l);
}

h3k_status h3k_embedding_i8_row(const h3k_scaled_embedding_args *a)
{
    return embedding(a, h3k_unpack_i8_row, 1);
}

h3k_status h3k_embedding_f8_e4m3(const h3k_scaled_embedding_args *a)
{
    return embedding(a, h3k_unpack_f8_e4m3, 1);
}

h3k_status h3k_embedding_nvfp4(const h3k_scaled_embedding_args *a)
{
    return embedding(a, h3k_unpack_nvfp4, H3K_NVFP4_BLOCK);
}
