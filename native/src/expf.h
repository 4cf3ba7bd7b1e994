/* exp in float32, written so that a compiler can vectorise it: no branches, no tables, no library call.
 *
 * x = n ln2 + r with |r| <= ln2 / 2, exp(r) by a polynomial, scaled by 2^n in two steps so that results below 2^-126 come
 * out as denormals. Error below 2 ulp over the whole range (native/tests/test_activation.c walks it). NaN -> NaN, inf -> inf, -inf -> 0.
 */
#ifndef H3K_EXPF_H
#define H3K_EXPF_H

#include "half.h"

/* ln2 in two parts; n * LN2_HIGH is exact for |n| < 2^13. */
#define LN2_HIGH 0x1.62ep-1f
#define LN2_LOW 0x1.0bfbe8p-15f
/* Adding it rounds to the nearest integer and leaves that in the low mantissa bits. */
#define EXP_SHIFT 0x1.8p23f

/* Coefficients: least maximum relative error of e^r over |r| <= ln2 / 2, about 5e-11 before rounding. */
static inline float h3k_expf(float x)
{
    float clamped = x < -104.0f ? -104.0f : x;
    clamped = clamped > 89.0f ? 89.0f : clamped;
    float shifted = clamped * 1.44269504f + EXP_SHIFT;
    float n = shifted - EXP_SHIFT;
    float r = clamped - n * LN2_HIGH - n * LN2_LOW;
    float p = 1.979029767e-4f;
    p = p * r + 1.394470339e-3f;
    p = p * r + 8.333497681e-3f;
    p = p * r + 4.166629538e-2f;
    p = p * r + 1.666666567e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    uint32_t bits = h3k_bits_of_float(shifted);
    int32_t whole = (int32_t)(bits - 0x4b400000u);
    int32_t half = whole >> 1;
    float low = h3k_float_of_bits((uint32_t)(half + 127) << 23);
    float high = h3k_float_of_bits((uint32_t)(whole - half + 127) << 23);
    return p * low * high;
}

/* x / (1 + e^-x) */
static inline float h3k_silu(float x)
{
    return x / (1.0f + h3k_expf(-x));
}

/* 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3), written as x * sigmoid(2u). */
static inline float h3k_gelu_tanh(float x)
{
    float u2 = 1.5957691216f * (x + 0.044715f * x * x * x);
    return x / (1.0f + h3k_expf(-u2));
}

#endif
