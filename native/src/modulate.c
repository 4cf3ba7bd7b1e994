/* AdaLN by a table of entries that many rows share, and the residual additions. */
#include "call.h"
#include "dispatch.h"

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

static void norm_modulate_rows(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const h3k_norm_modulate_args *a = context;
    const h3k_row_kernels *kernels = h3k_kernels_chosen()->rows;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++) {
        int64_t entry = a->row_index[row];
        kernels->norm(&(h3k_norm_row){.x = a->x + row * a->columns,
                                      .weight = a->weight,
                                      .scale = table_row(a->table, entry, a->slots, a->scale_slot, a->columns),
                                      .shift = table_row(a->table, entry, a->slots, a->shift_slot, a->columns),
                                      .y = a->y + row * a->columns,
                                      .columns = a->columns,
                                      .eps = a->eps});
    }
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
    const h3k_row_kernels *kernels = h3k_kernels_chosen()->rows;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++)
        kernels->residual(a->h + row * a->columns, a->y + row * a->columns,
                          table_row(a->table, a->row_index[row], a->slots, a->gate_slot, a->columns), a->columns);
}

h3k_status h3k_gated_residual(const h3k_gated_residual_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->h == NULL || a->y == NULL ||
        a->table == NULL || a->row_index == NULL || a->rows < 0 || a->columns < 1 ||
        !slot_exists(a->gate_slot, a->slots) || !indices_in_range(a->row_index, a->rows, a->entries))
        return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, h3k_rows_per_task(a->columns)), gated_residual_rows, a);
}

static void gated_residual_norm_rows(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const h3k_gated_residual_norm_args *a = context;
    const h3k_row_kernels *kernels = h3k_kernels_chosen()->rows;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++) {
        int64_t entry = a->row_index[row];
        float *h = a->h + row * a->columns;
        const h3k_norm_row norm = {.x = h,
                                   .weight = a->weight,
                                   .scale = table_row(a->norm_table, entry, a->slots, a->scale_slot, a->columns),
                                   .shift = table_row(a->norm_table, entry, a->slots, a->shift_slot, a->columns),
                                   .y = a->normed + row * a->columns,
                                   .columns = a->columns,
                                   .eps = a->eps};
        kernels->residual_norm(h, a->y + row * a->columns,
                               table_row(a->table, entry, a->slots, a->gate_slot, a->columns), &norm);
    }
}

h3k_status h3k_gated_residual_norm(const h3k_gated_residual_norm_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->h == NULL || a->y == NULL ||
        a->table == NULL || a->norm_table == NULL || a->row_index == NULL || a->normed == NULL || a->rows < 0 ||
        a->columns < 1 || !slot_exists(a->gate_slot, a->slots) || !slot_exists(a->shift_slot, a->slots) ||
        !slot_exists(a->scale_slot, a->slots) || !indices_in_range(a->row_index, a->rows, a->entries))
        return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, h3k_rows_per_task(a->columns)), gated_residual_norm_rows,
                            a);
}

static void scaled_residual_rows(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const h3k_scaled_residual_args *a = context;
    const h3k_row_kernels *kernels = h3k_kernels_chosen()->rows;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++) {
        float *h = a->h + row * a->columns;
        const float *y = a->y + row * a->columns;
        if (a->scale_vector == NULL)
            kernels->residual_by_number(h, y, a->scale, a->columns);
        else
            kernels->residual(h, y, a->scale_vector, a->columns);
    }
}

h3k_status h3k_scaled_residual(const h3k_scaled_residual_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->h == NULL || a->y == NULL || a->rows < 0 ||
        a->columns < 1 || a->reserved != 0)
        return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, h3k_rows_per_task(a->columns)), scaled_residual_rows, a);
}
