/* Panels of integer weights: rows of codes side by side, as the inner products want them; included by each instruction
 * set's file.
 */
#ifndef H3K_INTEGER_PANEL_H
#define H3K_INTEGER_PANEL_H

#include "integer_pack.h"
#include "vector.h"

/* to[i][column] = from[column][i] for units of four bytes: columns of `bytes` bytes (a multiple of 16) that lie sizeof
 * (h3k_codes) apart, their number a multiple of four. Serves codes (a unit is four of them) and scales alike. */
static inline void h3k_interleave(const void *restrict from, int bytes, int columns, void *restrict to)
{
    for (int j = 0; j < columns; j += 4)
        for (int k = 0; k < bytes; k += 16) {
            const uint8_t *row = (const uint8_t *)from + (size_t)j * sizeof(h3k_codes) + k;
            f32x4 unit[4];
            for (int i = 0; i < 4; i++)
                memcpy(&unit[i], row + (size_t)i * sizeof(h3k_codes), sizeof unit[i]);
            h3k_transpose4(unit);
            for (int i = 0; i < 4; i++)
                memcpy((uint8_t *)to + ((k / 4 + i) * columns + j) * 4, &unit[i], sizeof unit[i]);
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

/* The chunk of `columns` weight rows, one per column of a panel; those past the source's last are zero. */
static inline void h3k_decode_columns(const h3k_panel_source *source, bool requantised, int columns,
                                      h3k_codes *restrict rows)
{
    for (int j = 0; j < columns; j++)
        if (j >= source->columns)
            memset(&rows[j], 0, sizeof rows[j]);
        else if (requantised)
            h3k_requantise(source->weight, source->n0 + j, source->k0, source->depth, &rows[j]);
        else
            h3k_codes_of(source->weight, source->n0 + j, source->k0, source->depth, &rows[j]);
}

#endif
