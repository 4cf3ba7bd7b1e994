/* RMS norm by the row kernels and layer norm in plain C, over the last axis. */
#include "call.h"
#include "dispatch.h"
#include "norm.h"
#include "row_kernels.h"

static void rms_norm_rows(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const h3k_rms_norm_args *a = context;
    const h3k_row_kernels *kernels = h3k_kernels_chosen()->rows;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++)
        kernels->norm(&(h3k_norm_row){.x = a->x + row * a->columns, .weight = a->weight, .y = a->y + row * a->columns,
                                      .columns = a->columns, .eps = a->eps});
}

h3k_status h3k_rms_norm(const h3k_rms_norm_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->x == NULL || a->y == NULL || a->rows < 0 ||
        a->columns < 1)
        return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, h3k_rows_per_task(a->columns)), rms_norm_rows, a);
}

static void layer_norm_row(const h3k_layer_norm_args *a, int64_t row)
{
    const float *x = a->x + row * a->columns;
    float *y = a->y + row * a->columns;
    double mean = h3k_sum(x, a->columns) / (double)a->columns;
    double variance = h3k_sum_squares(x, a->columns, mean) / (double)a->columns;
    double scale = 1.0 / sqrt(variance + a->eps);
    for (int64_t i = 0; i < a->columns; i++)
        y[i] = (float)(((double)x[i] - mean) * scale) * a->weight[i] + a->bias[i];
}

static void layer_norm_rows(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const h3k_layer_norm_args *a = context;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++)
        layer_norm_row(a, row);
}

h3k_status h3k_layer_norm(const h3k_layer_norm_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->x == NULL || a->weight == NULL ||
        a->bias == NULL || a->y == NULL || a->rows < 0 || a->columns < 1)
        return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, h3k_rows_per_task(a->columns)), layer_norm_rows, a);
}
