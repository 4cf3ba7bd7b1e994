/* Per-head RMS norm of q and k and rotate-half position encoding, in place on packed rows. */
#include "call.h"
#include "norm.h"

static void norm_head(float *head, const float *weight, int64_t head_dim, double eps)
{
    float inverse = h3k_inverse_rms(head, head_dim, eps);
    if (weight == NULL)
        for (int64_t c = 0; c < head_dim; c++)
            head[c] = head[c] * inverse;
    else
        for (int64_t c = 0; c < head_dim; c++)
            head[c] = head[c] * inverse * weight[c];
}

static void rotate_head(float *head, const float *restrict cos_row, const float *restrict sin_row, int64_t half)
{
    float *restrict low = head, *restrict high = head + half;
    for (int64_t c = 0; c < half; c++) {
        float a = low[c], b = high[c];
        low[c] = a * cos_row[c] - b * sin_row[c];
        high[c] = b * cos_row[c] + a * sin_row[c];
    }
}

static void norm_rope_row(const h3k_qk_norm_rope_args *a, int64_t row)
{
    float *packed = a->qkv + row * (a->heads + 2 * a->kv_heads) * a->head_dim;
    for (int64_t h = 0; h < a->heads + a->kv_heads; h++) {
        float *head = packed + h * a->head_dim;
        norm_head(head, h < a->heads ? a->q_weight : a->k_weight, a->head_dim, a->eps);
        if (a->half > 0)
            rotate_head(head, a->cos + row * a->half, a->sin + row * a->half, a->half);
    }
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
