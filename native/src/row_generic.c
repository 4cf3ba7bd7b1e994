/* The row kernels in plain C: every product and sum rounds on its own. The truth for the other variants. */
#include <stddef.h>

#include "expf.h"
#include "norm.h"
#include "row_kernels.h"

static void norm(const h3k_norm_row *row)
{
    const h3k_norm_row a = *row;
    float inverse = h3k_inverse_root(h3k_sum_squares(a.x, a.columns, 0.0), a.columns, a.eps);
    for (int64_t i = 0; i < a.columns; i++)
        a.y[i] = a.x[i] * inverse;
    if (a.weight != NULL)
        for (int64_t i = 0; i < a.columns; i++)
            a.y[i] *= a.weight[i];
    if (a.scale != NULL)
        for (int64_t i = 0; i < a.columns; i++)
            a.y[i] = a.y[i] * (1.0f + a.scale[i]) + a.shift[i];
}

static void residual(float *restrict h, const float *restrict y, const float *restrict gate, int64_t columns)
{
    for (int64_t i = 0; i < columns; i++)
        h[i] += gate[i] * y[i];
}

static void residual_by_number(float *restrict h, const float *restrict y, float gate, int64_t columns)
{
    for (int64_t i = 0; i < columns; i++)
        h[i] += gate * y[i];
}

static void residual_norm(float *h, const float *y, const float *gate, const h3k_norm_row *row)
{
    residual(h, y, gate, row->columns);
    norm(row);
}

static void rotate(float *head, const float *restrict cos_row, const float *restrict sin_row, int64_t half)
{
    float *restrict low = head, *restrict high = head + half;
    for (int64_t c = 0; c < half; c++) {
        float a = low[c], b = high[c];
        low[c] = a * cos_row[c] - b * sin_row[c];
        high[c] = b * cos_row[c] + a * sin_row[c];
    }
}

static void norm_rope(const h3k_head_run *run)
{
    for (int64_t i = 0; i < run->count; i++) {
        float *head = run->heads + i * run->head_dim;
        norm(&(h3k_norm_row){.x = head, .weight = run->weight, .y = head, .columns = run->head_dim, .eps = run->eps});
        rotate(head, run->cos, run->sin, run->half);
    }
}

static void swiglu(const float *gate, const float *value, float *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] = h3k_silu(gate[i]) * value[i];
}

const h3k_row_kernels h3k_row_kernels_generic = {
    .norm = norm,
    .residual = residual,
    .residual_by_number = residual_by_number,
    .residual_norm = residual_norm,
    .norm_rope = norm_rope,
    .swiglu = swiglu,
};
