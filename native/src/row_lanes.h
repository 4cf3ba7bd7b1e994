/* The row kernels over vectors of LANES floats with fused products: the one source of every variant but the generic.
 *
 * A file includes it after defining its primitives, then names the table:
 *   LANES                    4, 8 or 16
 *   lanes                    a vector of LANES floats;  load, store (any address), splat, add, subtract, mul, divide
 *   fused(a, b, c)           a * b + c, one rounding;   fused_negative(a, b, c): c - a * b
 *   maximum(a, x), minimum(a, x)    a never NaN; x where x is NaN
 *   times_power(p, shifted)  p * 2^n for normal results, n the integer that adding EXP_SHIFT left in `shifted`
 *   wide                     a vector of LANES doubles; wide_zero, wide_add
 *   wide_add_squares(s, v)   s + v * v;                 wide_total(s): folded in halves
 * Lanes past the end of a row are loaded as zeros and not stored, so a row's result does not depend on LANES.
 */
#ifndef H3K_ROW_LANES_H
#define H3K_ROW_LANES_H

#include <stdbool.h>
#include <string.h>

#include "expf.h"
#include "norm.h"
#include "row_kernels.h"

#define VECTORS (H3K_PARTIAL_SUMS / LANES)
#define UNROLLED _Pragma("GCC unroll 4") /* keeps the partial sums in registers */
#define INLINE static inline __attribute__((always_inline))

/* `count` floats and zeros behind them. The loops below pass the constant LANES for all but the last vector. */
INLINE lanes take(const float *from, int64_t count)
{
    if (count >= LANES)
        return load(from);
    float part[LANES] = {0};
    memcpy(part, from, (size_t)count * sizeof *part);
    return load(part);
}

INLINE void put(float *to, lanes value, int64_t count)
{
    if (count >= LANES) {
        store(to, value);
        return;
    }
    float part[LANES];
    store(part, value);
    memcpy(to, part, (size_t)count * sizeof *part);
}

INLINE double fold(wide *sum)
{
    UNROLLED for (int apart = VECTORS / 2; apart > 0; apart /= 2)
        UNROLLED for (int j = 0; j < apart; j++)
            sum[j] = wide_add(sum[j], sum[j + apart]);
    return wide_total(sum[0]);
}

/* `next`, unless null: the row that is written afterwards; its cache lines arrive while x is read. Without that the
 * modulated norm of 1024 rows takes 15 % longer. */
INLINE float inverse_rms(const float *x, int64_t columns, double eps, const float *next)
{
    wide sum[VECTORS];
    UNROLLED for (int j = 0; j < VECTORS; j++)
        sum[j] = wide_zero();
    int64_t i = 0;
    for (; i + H3K_PARTIAL_SUMS <= columns; i += H3K_PARTIAL_SUMS) {
        if (next != NULL)
            __builtin_prefetch(next + i, 1, 2);
        UNROLLED for (int j = 0; j < VECTORS; j++)
            sum[j] = wide_add_squares(sum[j], load(x + i + j * LANES));
    }
    UNROLLED for (int j = 0; j < VECTORS; j++)
        if (i + j * LANES < columns)
            sum[j] = wide_add_squares(sum[j], take(x + i + j * LANES, columns - i - j * LANES));
    return h3k_inverse_root(fold(sum), columns, eps);
}

/* ---- norm */
INLINE void norm_step(const h3k_norm_row *a, lanes inverse, int64_t i, int64_t count)
{
    lanes v = mul(take(a->x + i, count), inverse);
    if (a->weight != NULL)
        v = mul(v, take(a->weight + i, count));
    if (a->scale != NULL)
        v = fused(v, add(splat(1.0f), take(a->scale + i, count)), take(a->shift + i, count));
    put(a->y + i, v, count);
}

INLINE void norm_columns(const h3k_norm_row a, lanes inverse)
{
    int64_t i = 0;
    for (; i + LANES <= a.columns; i += LANES)
        norm_step(&a, inverse, i, LANES);
    if (i < a.columns)
        norm_step(&a, inverse, i, a.columns - i);
}

/* The loop once for each presence of weight and modulation, so that none of them asks inside. */
static void norm_with(const h3k_norm_row *row, lanes inverse)
{
    h3k_norm_row a = *row;
    if (a.scale != NULL && a.weight != NULL) {
        norm_columns(a, inverse);
    } else if (a.scale != NULL) {
        a.weight = NULL;
        norm_columns(a, inverse);
    } else if (a.weight != NULL) {
        a.scale = NULL;
        norm_columns(a, inverse);
    } else {
        a.weight = a.scale = NULL;
        norm_columns(a, inverse);
    }
}

static void norm(const h3k_norm_row *row)
{
    norm_with(row, splat(inverse_rms(row->x, row->columns, row->eps, row->y)));
}

/* ---- residuals */
INLINE lanes residual_step(float *h, const float *y, lanes gate, int64_t count)
{
    lanes sum = fused(gate, take(y, count), take(h, count));
    put(h, sum, count);
    return sum;
}

static void residual(float *h, const float *y, const float *gate, int64_t columns)
{
    int64_t i = 0;
    for (; i + LANES <= columns; i += LANES)
        residual_step(h + i, y + i, load(gate + i), LANES);
    if (i < columns)
        residual_step(h + i, y + i, take(gate + i, columns - i), columns - i);
}

static void residual_by_number(float *h, const float *y, float gate, int64_t columns)
{
    int64_t i = 0;
    for (; i + LANES <= columns; i += LANES)
        residual_step(h + i, y + i, splat(gate), LANES);
    if (i < columns)
        residual_step(h + i, y + i, splat(gate), columns - i);
}

/* The squares are summed while the residual is added, in the order of inverse_rms. */
static void residual_norm(float *h, const float *y, const float *gate, const h3k_norm_row *row)
{
    const int64_t columns = row->columns;
    wide sum[VECTORS];
    UNROLLED for (int j = 0; j < VECTORS; j++)
        sum[j] = wide_zero();
    int64_t i = 0;
    for (; i + H3K_PARTIAL_SUMS <= columns; i += H3K_PARTIAL_SUMS) {
        __builtin_prefetch(row->y + i, 1, 2);
        UNROLLED for (int j = 0; j < VECTORS; j++) {
            int64_t at = i + j * LANES;
            sum[j] = wide_add_squares(sum[j], residual_step(h + at, y + at, load(gate + at), LANES));
        }
    }
    UNROLLED for (int j = 0; j < VECTORS; j++) {
        int64_t at = i + j * LANES, rest = columns - at;
        if (rest > 0)
            sum[j] = wide_add_squares(sum[j], residual_step(h + at, y + at, take(gate + at, rest), rest));
    }
    norm_with(row, splat(h3k_inverse_root(fold(sum), columns, row->eps)));
}

/* ---- heads */
INLINE lanes normed(const float *x, const float *weight, lanes inverse, int64_t count)
{
    lanes v = mul(take(x, count), inverse);
    return weight == NULL ? v : mul(v, take(weight, count));
}

/* Channels c and c + half of one head, c = 0..count-1. */
INLINE void rotate_step(float *x, const h3k_head_run *a, lanes inverse, int64_t c, int64_t count)
{
    lanes low = normed(x + c, a->weight == NULL ? NULL : a->weight + c, inverse, count);
    lanes high = normed(x + a->half + c, a->weight == NULL ? NULL : a->weight + a->half + c, inverse, count);
    lanes cosine = take(a->cos + c, count), sine = take(a->sin + c, count);
    put(x + c, fused_negative(high, sine, mul(low, cosine)), count);
    put(x + a->half + c, fused(low, sine, mul(high, cosine)), count);
}

INLINE void turn_head(float *x, const h3k_head_run *a, lanes inverse)
{
    int64_t c = 0;
    for (; c + LANES <= a->half; c += LANES)
        rotate_step(x, a, inverse, c, LANES);
    if (c < a->half)
        rotate_step(x, a, inverse, c, a->half - c);
    const h3k_norm_row rest = {.x = x + 2 * a->half, .weight = a->weight == NULL ? NULL : a->weight + 2 * a->half,
                               .y = x + 2 * a->half, .columns = a->head_dim - 2 * a->half};
    norm_columns(rest, inverse);
}

#define HEADS_TOGETHER 8 /* their divisions and roots overlap */

INLINE void turn_heads(const h3k_head_run *a)
{
    for (int64_t first = 0; first < a->count; first += HEADS_TOGETHER) {
        float *x = a->heads + first * a->head_dim, inverse[HEADS_TOGETHER];
        int64_t count = a->count - first < HEADS_TOGETHER ? a->count - first : HEADS_TOGETHER;
        for (int64_t i = 0; i < count; i++)
            inverse[i] = inverse_rms(x + i * a->head_dim, a->head_dim, a->eps, NULL);
        for (int64_t i = 0; i < count; i++)
            turn_head(x + i * a->head_dim, a, splat(inverse[i]));
    }
}

static void norm_rope(const h3k_head_run *run)
{
    h3k_head_run a = *run;
    if (a.weight != NULL) {
        turn_heads(&a);
    } else {
        a.weight = NULL;
        turn_heads(&a);
    }
}

/* ---- SwiGLU */
/* e^-x for -88 <= x <= 87, where 2^n and the result are normal: the polynomial of expf.h, its terms in pairs. */
INLINE lanes exponential_of_negative(lanes x)
{
    lanes shifted = fused(x, splat(-1.44269504f), splat(EXP_SHIFT));
    lanes n = add(shifted, splat(-EXP_SHIFT));
    lanes minus_r = fused(n, splat(LN2_LOW), fused(n, splat(LN2_HIGH), x));
    lanes r2 = mul(minus_r, minus_r);
    lanes high = fused(minus_r, splat(-1.979029767e-4f), splat(1.394470339e-3f));
    lanes middle = fused(minus_r, splat(-8.333497681e-3f), splat(4.166629538e-2f));
    lanes low = fused(minus_r, splat(-1.666666567e-1f), splat(0.5f));
    lanes p = fused(fused(high, r2, middle), r2, low);
    return times_power(add(subtract(mul(p, r2), minus_r), splat(1.0f)), shifted);
}

/* silu(x) of x < -88 is that of -88, -5e-37; NaN stays. */
INLINE void swiglu_step(const float *gate, const float *value, float *y, int64_t count)
{
    lanes x = maximum(splat(-88.0f), take(gate, count));
    lanes silu = divide(x, add(splat(1.0f), exponential_of_negative(minimum(splat(87.0f), x))));
    put(y, mul(silu, take(value, count)), count);
}

static void swiglu(const float *gate, const float *value, float *y, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        swiglu_step(gate + i, value + i, y + i, LANES);
    if (i < count)
        swiglu_step(gate + i, value + i, y + i, count - i);
}

#define ROW_KERNELS                                                                                                    \
    {                                                                                                                  \
        .norm = norm, .residual = residual, .residual_by_number = residual_by_number, .residual_norm = residual_norm,  \
        .norm_rope = norm_rope, .swiglu = swiglu,                                                                      \
    }

#endif
