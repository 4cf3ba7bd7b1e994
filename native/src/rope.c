/* Per-head RMS norm of q and k and rotate-half position encoding, in place on packed rows. */
#include "call.h"
#include "dispatch.h"

static void norm_rope_row(const h3k_qk_norm_rope_args *a, int64_t row)
{
    const h3k_row_kernels *kernels = h3k_kernels_chosen()->rows;
    float *packed = a->qkv + row * (a->heads + 2 * a->kv_heads) * a->head_dim;
    h3k_head_run run = {.heads = packed, .weight = a->q_weight, .count = a->heads, .head_dim = a->head_dim,
                        .half = a->half, .eps = a->eps};
    if (a->half > 0)
        run.cos = a->cos + row * a->half, run.sin = a->sin + row * a->half;
    kernels->norm_rope(&run);
    run.heads = packed + a->heads * a->head_dim, run.weight = a->k_weight, run.count = a->kv_heads;
    kernels->norm_rope(&run);
}

static int64_t rows_per_task(const h3k_qk_norm_rope_args *a)
{
    return h3k_rows_per_task((a->heads + a->kv_heads) * a->head_dim);
}

static void norm_rope_rows(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const h3k_qk_norm_rope_args *a = context;
    int64_t step = rows_per_task(a);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++)
        norm_rope_row(a, row);
}

h3k_status h3k_qk_norm_rope(const h3k_qk_norm_rope_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->qkv == NULL || a->rows < 0 || a->heads < 1 ||
        a->kv_heads < 1 || a->head_dim < 1 || a->half < 0 || 2 * a->half > a->head_dim ||
        (a->half > 0) != (a->cos != NULL) || (a->half > 0) != (a->sin != NULL))
        return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, rows_per_task(a)), norm_rope_rows, a);
}
