/* 16-bit floats to float32, exactly, without denormal arithmetic (a caller may have set denormals-are-zero). */
#ifndef H3K_HALF_H
#define H3K_HALF_H

#include <stdint.h>
#include <string.h>

static inline float h3k_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t h3k_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float h3k_float_of_bf16(uint16_t half)
{
    return h3k_float_of_bits((uint32_t)half << 16);
}

/* Subnormal halves are mantissa * 2^-24: read the mantissa as 2^-14 + mantissa * 2^-24 and take 2^-14 away. */
static inline float h3k_float_of_f16(uint16_t half)
{
    uint32_t magnitude = (uint32_t)(half & 0x7fffu) << 13;
    uint32_t exponent = magnitude & 0x0f800000u;
    float subnormal = h3k_float_of_bits(magnitude + 0x38800000u) - h3k_float_of_bits(0x38800000u);
    uint32_t normal = magnitude + (exponent == 0x0f800000u ? 0x70000000u : 0x38000000u);
    uint32_t bits = exponent == 0 ? h3k_bits_of_float(subnormal) : normal;
    return h3k_float_of_bits(bits | (uint32_t)(half & 0x8000u) << 16);
}

#if defined(__F16C__)
#include <immintrin.h>
#endif

/* The half at any address; where the processor converts, in one instruction. */
static inline float h3k_load_f16(const uint8_t *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
#if defined(__F16C__)
    return _cvtsh_ss(half);
#else
    return h3k_float_of_f16(half);
#endif
}

#endif
