/* Panels of integer weights: rows of codes side by side, as the inner products want them; included by each instruction
 * set's file.
 */
#ifndef H3K_INTEGER_PANEL_H
#define H3K_INTEGER_PANEL_H

#include "integer_pack.h"

typedef uint32_t h3k_u32x4 __attribute__((vector_size(16)));

/* to[i][column] = from[column][i] for units of four bytes: columns of `bytes` bytes (a multiple of 16) that lie sizeof
 * (h3k_codes) apart, their number a multiple of four. Serves codes (a unit is four of them) and scales alike. */
static inline void h3k_interleave(const void *restrict from, int bytes, int columns, void *restrict to)
{
    for (int j = 0; j < columns; j += 4)
        for (int k = 0; k < bytes; k += 16) {
            const uint8_t *row = (const uint8_t *)from + (size_t)j * sizeof(h3k_codes) + k;
            h3k_u32x4 a, b, c, d;
            memcpy(&a, row, 16);
            memcpy(&b, row + sizeof(h3k_codes), 16);
            memcpy(&c, row + 2 * sizeof(h3k_codes), 16);
            memcpy(&d, row + 3 * sizeof(h3k_codes), 16);
            h3k_u32x4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
            h3k_u32x4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            h3k_u32x4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
            h3k_u32x4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
            h3k_u32x4 unit[4] = {
                __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7),
            };
            for (int i = 0; i < 4; i++)
                memcpy((uint8_t *)to + ((k / 4 + i) * columns + j) * 4, &unit[i], 16);
        }
}

/* One row's chunk as int8 with a single scale: from its float32 values. */
static inline void h3k_requantise(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                                  h3k_codes *restrict out)
{
    float values[H3K_CHUNK];
    int32_t q[H3K_CHUNK];
    w->format->unpack(w, row, start, count, values);
    out->scale[0] = h3k_round_chunk(values, count, H3K_LIMIT_I8, q);
    for (int i = 0; i < H3K_CHUNK; i++)
        out->q[i] = (int8_t)q[i];
    out->bias[0] = 0.0f;
}

#endif
