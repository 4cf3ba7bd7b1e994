/* Random weight rows of every format, and their meaning element by element, written from the formulas in float64. */
#ifndef H3K_TESTS_WEIGHTS_H
#define H3K_TESTS_WEIGHTS_H

#include "check.h"

/* The numbers of h3k_format_id. */
typedef enum { F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, FORMAT_COUNT } format_id;

static const char *const format_names[FORMAT_COUNT] = {
    "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k",
};
static const int64_t format_elements[FORMAT_COUNT] = {1, 1, 1, 32, 32, 32, 32, 32, 256, 256, 256, 256, 256};
static const int64_t format_bytes[FORMAT_COUNT] = {4, 2, 2, 34, 18, 20, 22, 24, 84, 110, 144, 176, 210};

/* Where the block's two halves lie, -1 where it has one or none. */
static const int64_t scale_at[FORMAT_COUNT] = {-1, 0, -1, 0, 0, 0, 0, 0, 80, 108, 0, 0, 208};
static const int64_t min_at[FORMAT_COUNT] = {-1, -1, -1, -1, -1, 2, -1, 2, 82, -1, 2, 2, -1};

static inline int64_t row_bytes_of(format_id format, int64_t columns)
{
    return columns / format_elements[format] * format_bytes[format];
}

/* A half of the value (-1)^sign 2^(exponent - 15) (1 + mantissa / 1024). */
static inline uint16_t half_bits(uint32_t sign, uint32_t exponent, uint32_t mantissa)
{
    return (uint16_t)((sign & 1) << 15 | (exponent & 31) << 10 | (mantissa & 1023));
}

/* Scales between 2^-9 and 2^-5 of either sign. */
static inline uint16_t random_scale(void)
{
    return half_bits(random_bits(), 6 + random_bits() % 4, random_bits());
}

static inline uint8_t *random_weights(format_id format, int64_t rows, int64_t columns)
{
    int64_t blocks = rows * columns / format_elements[format], size = format_bytes[format];
    uint8_t *bytes = get_memory((size_t)(blocks * size));
    for (int64_t i = 0; i < blocks * size; i++)
        bytes[i] = (uint8_t)random_bits();
    for (int64_t b = 0; b < blocks; b++) {
        uint8_t *block = bytes + b * size;
        float f = random_float();
        uint32_t bits;
        memcpy(&bits, &f, 4);
        uint16_t upper = (uint16_t)(bits >> 16), scale = random_scale(), min = random_scale();
        if (format == F32)
            memcpy(block, &f, 4);
        if (format == BF16)
            memcpy(block, &upper, 2);
        if (scale_at[format] >= 0)
            memcpy(block + scale_at[format], &scale, 2);
        if (min_at[format] >= 0)
            memcpy(block + min_at[format], &min, 2);
    }
    return bytes;
}

static inline double half_value(const uint8_t *at)
{
    uint32_t h = (uint32_t)at[0] | (uint32_t)at[1] << 8, exponent = h >> 10 & 31, mantissa = h & 1023;
    double sign = h >> 15 ? -1.0 : 1.0;
    if (exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    return exponent ? sign * ldexp(1024 + mantissa, (int)exponent - 25) : sign * ldexp(mantissa, -24);
}

/* `bits` bits of a byte string, bit 0 being the least significant of byte 0. */
static inline int field(const uint8_t *bytes, int64_t first_bit, int bits)
{
    int value = 0;
    for (int b = 0; b < bits; b++)
        value += (bytes[(first_bit + b) / 8] >> (first_bit + b) % 8 & 1) << b;
    return value;
}

/* The nibble of element i of 32: elements 16 apart share a byte. */
static inline int nibble_of_32(const uint8_t *qs, int64_t i)
{
    return field(qs, 8 * (i % 16) + 4 * (i / 16), 4);
}

static inline float in_float(double x)
{
    return (float)x;
}

/* Scale and minimum of 6 bits of group g, q4_k and q5_k. */
static inline void packed_scales(const uint8_t *s, int64_t g, int *scale, int *min)
{
    if (g < 4) {
        *scale = s[g] % 64;
        *min = s[g + 4] % 64;
    } else {
        *scale = s[g + 4] % 16 + 16 * (s[g - 4] / 64);
        *min = s[g + 4] / 16 + 16 * (s[g] / 64);
    }
}

/* q4_k and q5_k: `qs` the nibbles, `qh` the fifth bits or null. */
static inline double wide_group_value(const uint8_t *block, const uint8_t *qs, const uint8_t *qh, int64_t i)
{
    int scale, min, q = field(qs, 8 * (i / 64 * 32 + i % 32) + 4 * (i / 32 % 2), 4);
    if (qh != NULL)
        q += 16 * field(qh, 8 * (i % 32) + i / 32, 1);
    packed_scales(block + 4, i / 32, &scale, &min);
    float scaled = in_float(half_value(block) * scale), offset = in_float(half_value(block + 2) * min);
    return (double)(in_float((double)scaled * q) - offset);
}

/* Two bits of element i of 256, q2_k and q3_k; also the upper two of q6_k. */
static inline int pair_of_256(const uint8_t *bytes, int64_t i)
{
    return field(bytes, 8 * (i / 128 * 32 + i % 32) + 2 * (i / 32 % 4), 2);
}

static inline double q2_k_value(const uint8_t *block, int64_t i)
{
    int scale = block[i / 16] % 16, min = block[i / 16] / 16;
    float scaled = in_float(half_value(block + 80) * scale), offset = in_float(half_value(block + 82) * min);
    return (double)(in_float((double)scaled * pair_of_256(block + 16, i)) - offset);
}

static inline double q3_k_value(const uint8_t *block, int64_t i)
{
    int64_t g = i / 16;
    int scale = field(block + 96, 8 * (g % 8) + 4 * (g / 8), 4) + 16 * field(block + 104, 8 * (g % 4) + 2 * (g / 4), 2);
    int q = pair_of_256(block + 32, i) - (field(block, 8 * (i % 32) + i / 32, 1) ? 0 : 4);
    return (double)in_float(half_value(block + 108) * (scale - 32)) * q;
}

static inline double q6_k_value(const uint8_t *block, int64_t i)
{
    int64_t half = i / 128, run = i / 32 % 4;
    int q = field(block, 8 * (64 * half + 32 * (run % 2) + i % 32) + 4 * (run / 2), 4) + 16 * pair_of_256(block + 128, i);
    return (double)in_float(half_value(block + 208) * (int8_t)block[192 + i / 16]) * (q - 32);
}

/* Element (row, column); float32 rounding where the format's formula rounds. */
static inline double weight_value(format_id format, const uint8_t *bytes, int64_t columns, int64_t row, int64_t column)
{
    const uint8_t *block = bytes + row * row_bytes_of(format, columns) +
                           column / format_elements[format] * format_bytes[format];
    int64_t element = column % format_elements[format];
    uint32_t bits = 0;
    float value;
    switch (format) {
    case F16:
        return half_value(block);
    case Q8_0:
        return half_value(block) * (int8_t)block[2 + element];
    case Q4_0:
        return half_value(block) * (nibble_of_32(block + 2, element) - 8);
    case Q4_1:
        return (double)in_float(half_value(block) * nibble_of_32(block + 4, element) + half_value(block + 2));
    case Q5_0:
        return half_value(block) * (nibble_of_32(block + 6, element) + 16 * field(block + 2, element, 1) - 16);
    case Q5_1:
        return (double)in_float(half_value(block) * (nibble_of_32(block + 8, element) + 16 * field(block + 4, element, 1)) +
                                half_value(block + 2));
    case Q2_K:
        return q2_k_value(block, element);
    case Q3_K:
        return (double)in_float(q3_k_value(block, element));
    case Q4_K:
        return wide_group_value(block, block + 16, NULL, element);
    case Q5_K:
        return wide_group_value(block, block + 48, block + 16, element);
    case Q6_K:
        return (double)in_float(q6_k_value(block, element));
    default:
        memcpy((uint8_t *)&bits + (format == BF16 ? 2 : 0), block, (size_t)format_bytes[format]);
        memcpy(&value, &bits, 4);
        return (double)value;
    }
}

#endif
