/* Panels of integer weights: rows of codes side by side, as the inner products want them; included by each instruction
 * set's file.
 */
#ifndef H3K_INTEGER_PANEL_H
#define H3K_INTEGER_PANEL_H

#include "integer_pack.h"

typedef uint32_t h3k_u32x4 __attribute__((vector_size(16)));

/* quads[k / 4][column][4] = rows[column].q[k]: four rows of 16 bytes at a time, `columns` a multiple of four. */
static inline void h3k_interleave_quads(const h3k_codes *restrict rows, int columns, uint8_t *restrict quads)
{
    for (int j = 0; j < columns; j += 4)
        for (int k = 0; k < H3K_CHUNK; k += 16) {
            h3k_u32x4 a, b, c, d;
            memcpy(&a, rows[j].q + k, 16);
            memcpy(&b, rows[j + 1].q + k, 16);
            memcpy(&c, rows[j + 2].q + k, 16);
            memcpy(&d, rows[j + 3].q + k, 16);
            h3k_u32x4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            h3k_u32x4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
            h3k_u32x4 quad[4] = {
                __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7),
            };
            for (int i = 0; i < 4; i++)
                memcpy(quads + ((k / 4 + i) * columns + j) * 4, &quad[i], 16);
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
