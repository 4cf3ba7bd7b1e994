/* Rows times a block-diagonal Hadamard rotation, as a fast transform: log4(group) rounds of eight sums per four elements.
 *
 * Each factor H4 of the Kronecker product mixes the elements that lie 1, 4, 16, ... apart; factors commute. The first two
 * are done on 16 elements in registers, the others pass over the group in the first-level cache. All halves are taken at
 * once, while loading: they are powers of two. Every element is a sum in one fixed order, whatever the rows and threads.
 */
#include "call.h"
#include "vector.h"

/* Twice H4 on four vectors, lane by lane. */
static inline void mix(f32x4 *a, f32x4 *b, f32x4 *c, f32x4 *d)
{
    f32x4 ab = *a + *b, a_b = *a - *b, cd = *c + *d, c_d = *c - *d;
    *a = ab + c_d;
    *b = ab - c_d;
    *c = a_b + cd;
    *d = cd - a_b;
}

static inline f32x4 load_scaled(const float *x, const float *pre_scale, f32x4 half)
{
    f32x4 value = h3k_load4(x);
    return (pre_scale == NULL ? value : value * h3k_load4(pre_scale)) * half;
}

/* The factors of distance 1 and 4 on 16 elements. y may be x. */
static inline void mix_16(const float *x, const float *pre_scale, f32x4 half, float *y)
{
    f32x4 v[4];
    for (int i = 0; i < 4; i++)
        v[i] = load_scaled(x + 4 * i, pre_scale == NULL ? NULL : pre_scale + 4 * i, half);
    mix(&v[0], &v[1], &v[2], &v[3]);
    h3k_transpose4(v);
    mix(&v[0], &v[1], &v[2], &v[3]);
    h3k_transpose4(v);
    for (int i = 0; i < 4; i++)
        h3k_store4(y + 4 * i, v[i]);
}

/* The factor of distance `stride`, a multiple of 4, on 4 * stride elements in place. */
static inline void mix_apart(float *y, int64_t stride)
{
    for (int64_t j = 0; j < stride; j += 4) {
        float *at = y + j;
        f32x4 a = h3k_load4(at), b = h3k_load4(at + stride);
        f32x4 c = h3k_load4(at + 2 * stride), d = h3k_load4(at + 3 * stride);
        mix(&a, &b, &c, &d);
        h3k_store4(at, a);
        h3k_store4(at + stride, b);
        h3k_store4(at + 2 * stride, c);
        h3k_store4(at + 3 * stride, d);
    }
}

static void rotate_group(const float *x, const float *pre_scale, f32x4 half, int64_t group, float *y)
{
    for (int64_t i = 0; i < group; i += 16)
        mix_16(x + i, pre_scale == NULL ? NULL : pre_scale + i, half, y + i);
    for (int64_t stride = 16; stride < group; stride *= 4)
        for (int64_t i = 0; i < group; i += 4 * stride)
            mix_apart(y + i, stride);
}

/* Groups of 4, and of 1 where the scale is all there is. */
static void rotate_row_of_small_groups(const h3k_rotate_rows_args *a, const float *x, float *y)
{
    for (int64_t i = 0; i < a->columns; i += a->group) {
        float v[4] = {0};
        for (int64_t j = 0; j < a->group; j++)
            v[j] = a->pre_scale == NULL ? x[i + j] : x[i + j] * a->pre_scale[i + j];
        if (a->group == 1) {
            y[i] = v[0];
            continue;
        }
        float ab = v[0] + v[1], a_b = v[0] - v[1], cd = v[2] + v[3], c_d = v[2] - v[3];
        y[i] = 0.5f * (ab + c_d);
        y[i + 1] = 0.5f * (ab - c_d);
        y[i + 2] = 0.5f * (a_b + cd);
        y[i + 3] = 0.5f * (cd - a_b);
    }
}

static void rotate_row(const h3k_rotate_rows_args *a, int64_t row)
{
    const float *x = a->x + row * a->columns;
    float *y = a->y + row * a->columns, half = 1.0f;
    if (a->group < 16) {
        rotate_row_of_small_groups(a, x, y);
        return;
    }
    for (int64_t size = a->group; size > 1; size /= 4)
        half *= 0.5f;
    for (int64_t i = 0; i < a->columns; i += a->group)
        rotate_group(x + i, a->pre_scale == NULL ? NULL : a->pre_scale + i, h3k_splat(half), a->group, y + i);
}

static void rotate_rows(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const h3k_rotate_rows_args *a = context;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++)
        rotate_row(a, row);
}

static bool is_power_of_4(int64_t group)
{
    while (group > 1 && group % 4 == 0)
        group /= 4;
    return group == 1;
}

h3k_status h3k_rotate_rows(const h3k_rotate_rows_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->x == NULL || a->y == NULL || a->rows < 0 ||
        a->columns < 1 || !is_power_of_4(a->group) || a->columns % a->group != 0)
        return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, h3k_rows_per_task(a->columns)), rotate_rows, a);
}
