/* Random weight rows of every format, and their meaning element by element, written from the formulas in float64. */
#ifndef H3K_TESTS_WEIGHTS_H
#define H3K_TESTS_WEIGHTS_H

#include "check.h"

typedef enum { F32, F16, BF16, Q8_0, Q4_0, Q4_K, FORMAT_COUNT } format_id;

static const char *const format_names[FORMAT_COUNT] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k"};
static const int64_t format_elements[FORMAT_COUNT] = {1, 1, 1, 32, 32, 256};
static const int64_t format_bytes[FORMAT_COUNT] = {4, 2, 2, 34, 18, 144};

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
        uint16_t scale = format == BF16 ? (uint16_t)(bits >> 16) : random_scale(), min = random_scale();
        if (format == F32)
            memcpy(block, &f, 4);
        else
            memcpy(block, &scale, 2);
        if (format == Q4_K)
            memcpy(block + 2, &min, 2);
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

static inline double q4_k_value(const uint8_t *block, int64_t element)
{
    int64_t group = element / 32, in_group = element % 32;
    const uint8_t *s = block + 4;
    int scale, min;
    if (group < 4) {
        scale = s[group] % 64;
        min = s[group + 4] % 64;
    } else {
        scale = s[group + 4] % 16 + 16 * (s[group - 4] / 64);
        min = s[group + 4] / 16 + 16 * (s[group] / 64);
    }
    int byte = block[16 + group / 2 * 32 + in_group];
    int q = group % 2 ? byte / 16 : byte % 16;
    float scaled = (float)(half_value(block) * scale), offset = (float)(half_value(block + 2) * min);
    return (double)((float)((double)scaled * q) - offset);
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
        return half_value(block) * ((element < 16 ? block[2 + element] % 16 : block[2 + element - 16] / 16) - 8);
    case Q4_K:
        return q4_k_value(block, element);
    default:
        memcpy((uint8_t *)&bits + (format == BF16 ? 2 : 0), block, (size_t)format_bytes[format]);
        memcpy(&value, &bits, 4);
        return (double)value;
    }
}

#endif
