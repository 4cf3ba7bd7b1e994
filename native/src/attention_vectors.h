/* Arithmetic on eight floats for attention_integer.h, over the primitives lane_fma, lane_max, lane_round, lane_float. */
#ifndef H3K_ATTENTION_VECTORS_H
#define H3K_ATTENTION_VECTORS_H

#include <stdbool.h>
#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS f8 load_floats(const float *from)
{
    f8 x;
    memcpy(&x, from, sizeof x);
    return x;
}

ALWAYS void store_floats(float *to, f8 x)
{
    memcpy(to, &x, sizeof x);
}

ALWAYS i8 load_integers(const int32_t *from)
{
    i8 x;
    memcpy(&x, from, sizeof x);
    return x;
}

ALWAYS f8 splat(float x)
{
    return (f8){x, x, x, x, x, x, x, x};
}

ALWAYS float largest(f8 x)
{
    f8 y = lane_max(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3));
    y = lane_max(y, __builtin_shufflevector(y, y, 2, 3, 0, 1, 6, 7, 4, 5));
    return lane_max(y, __builtin_shufflevector(y, y, 1, 0, 3, 2, 5, 4, 7, 6))[0];
}

ALWAYS float total_of(f8 x)
{
    x += __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
    x += __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5);
    return x[0] + x[1];
}

/* 2^x for x <= 0, 2^-126 below that; relative error 8e-5, wide 3e-6 (least maximum over a half to either side). */
ALWAYS f8 exp2_of(f8 x, const bool wide)
{
    f8 magic = splat(12582912.0f); /* 1.5 * 2^23: the sum's low bits are the nearest integer */
    x = lane_max(splat(-126.0f), x);
    f8 whole = x + magic, r = x - (whole - magic), p;
    if (wide) {
        p = lane_fma(splat(9.570101433e-03f), r, splat(5.591786028e-02f));
        p = lane_fma(p, r, splat(2.402474484e-01f));
        p = lane_fma(p, r, splat(6.931218147e-01f));
        p = lane_fma(p, r, splat(9.999992614e-01f));
    } else {
        p = lane_fma(splat(5.517166492e-02f), r, splat(2.426111219e-01f));
        p = lane_fma(p, r, splat(6.932609862e-01f));
        p = lane_fma(p, r, splat(9.999280736e-01f));
    }
    return (f8)((u8)p + ((u8)whole << 23));
}

/* Eight rows of eight lanes: lane i of the result is the maximum, or the sum, of x[i]. */
#define FOLD(name, combine)                                                                                     \
    ALWAYS f8 name(const f8 *x)                                                                                 \
    {                                                                                                           \
        f8 pair[4], quad[2];                                                                                    \
        for (int i = 0; i < 4; i++)                                                                             \
            pair[i] = combine(__builtin_shufflevector(x[i], x[i + 4], 0, 1, 2, 3, 8, 9, 10, 11),                \
                              __builtin_shufflevector(x[i], x[i + 4], 4, 5, 6, 7, 12, 13, 14, 15));             \
        for (int i = 0; i < 2; i++)                                                                             \
            quad[i] = combine(__builtin_shufflevector(pair[i], pair[i + 2], 0, 1, 8, 9, 4, 5, 12, 13),          \
                              __builtin_shufflevector(pair[i], pair[i + 2], 2, 3, 10, 11, 6, 7, 14, 15));       \
        return combine(__builtin_shufflevector(quad[0], quad[1], 0, 8, 2, 10, 4, 12, 6, 14),                    \
                       __builtin_shufflevector(quad[0], quad[1], 1, 9, 3, 11, 5, 13, 7, 15));                   \
    }

ALWAYS f8 lane_sum(f8 a, f8 b)
{
    return a + b;
}

FOLD(largest_of_rows, lane_max)
FOLD(total_of_rows, lane_sum)

#endif
