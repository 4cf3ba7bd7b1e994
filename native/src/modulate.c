/* AdaLN by a table of entries that many rows share, and the residual additions. */
#include "call.h"
#include "norm.h"

static bool indices_in_range(const int32_t *index, int64_t rows, int64_t entries)
{
    for (int64_t row = 0; row < rows; row++)
        if (index[row] < 0 || index[row] >= entries)
            return false;
    return true;
}

static bool slot_exists(int64_t slot, int64_t slots)
{
    return slot >= 0 && slot < slots;
}

static const float *table_row(const float *table, int64_t entry, int64_t slots, int64_t slot, int64_t columns)
{
    return table + (entry * slots + slot) * columns;
}

static void norm_modulate_row(const h3k_norm_modulate_args *a, int64_t row)
{
    const float *x = a->x + row * a->columns;
    const float *shift = table_row(a->table, a->row_index[row], a->slots, a->shift_slot, a->columns);
    const float *scale = table_row(a->table, a->row_index[row], a->slots, a->scale_slot, a->columns);
    float *y = a->y + row * a->columns;
    float inverse = h3k_inverse_rms(x, a->columns, a->eps);
    if (a->weight == NULL)
        for (int64_t i = 0; i < a->columns; i++)
            y[i] = x[i] * inverse * (1.0f + scale[i]) + shift[i];
    else
        for (int64_t i = 0; i < a->columns; i++)
            y[i] = x[i] * inverse * a->weight[i] * (1.0f + scale[i]) + shift[i];
}

static void norm_modulate_rows(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const h3k_norm_modulate_args *a = context;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++)
        norm_modulate_row(a, row);
}

h3k_status h3k_norm_modulate(const h3k_norm_modulate_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->x == NULL || a->table == NULL ||
        a->row_index == NULL || a->y == NULL || a->rows < 0 || a->columns < 1 ||
        !slot_exists(a->shift_slot, a->slots) || !slot_exists(a->scale_slot, a->slots) ||
        !indices_in_range(a->row_index, a->rows, a->entries))
        return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, h3k_rows_per_task(a->columns)), norm_modulate_rows, a);
}

static void gated_residual_rows(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const h3k_gated_residual_args *a = context;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++) {
        const float *gate = table_row(a->table, a->row_index[row], a->slots, a->gate_slot, a->columns);
        const float *restrict y = a->y + row * a->columns;
        float *restrict h = a->h + row * a->columns;
        for (int64_t i = 0; i < a->columns; i++)
            h[i] += gate[i] * y[i];
    }
}

h3k_status h3k_gated_residual(const h3k_gated_residual_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->h == NULL || a->y == NULL ||
        a->table == NULL || a->row_index == NULL || a->rows < 0 || a->columns < 1 ||
        !slot_exists(a->gate_slot, a->slots) || !indices_in_range(a->row_index, a->rows, a->entries))
        return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, h3k_rows_per_task(a->columns)), gated_residual_rows, a);
}

static void scaled_residual_rows(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const h3k_scaled_residual_args *a = context;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++) {
        const float *restrict y = a->y + row * a->columns;
        float *restrict h = a->h + row * a->columns;
        if (a->scale_vector == NULL)
            for (int64_t i = 0; i < a->columns; i++)
                h[i] += a->scale * y[i];
        else
            for (int64_t i = 0; i < a->columns; i++)
                h[i] += a->scale_vector[i] * y[i];
    }
}

h3k_status h3k_scaled_residual(const h3k_scaled_residual_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->h == NULL || a->y == NULL || a->rows < 0 ||
        a->columns < 1 || a->reserved != 0)
        return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, h3k_rows_per_task(a->columns)), scaled_residual_rows, a);
}
