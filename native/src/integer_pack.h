/* A row's chunk as integers; included by each instruction set's file.
 *
 * d = largest magnitude / limit, q = round(x / d). Infinities and NaN make d NaN, so they reach every result of the row.
 */
#ifndef H3K_INTEGER_PACK_H
#define H3K_INTEGER_PACK_H

#include "integer.h"

#define H3K_LIMIT_I8 127.0f
#define H3K_LIMIT_I16 32512.0f /* 127 * 256: the high plane of two stays within int8 */

/* x / d rounded to integers, zeros behind `count`; returns d. */
static inline float h3k_round_chunk(const float *restrict x, int64_t count, float limit, int32_t *restrict q)
{
    float lane[16] = {0}, poison[16] = {0}, values[H3K_CHUNK];
    memcpy(values, x, (size_t)count * sizeof *x);
    memset(values + count, 0, (size_t)(H3K_CHUNK - count) * sizeof *x);
    for (int i = 0; i < H3K_CHUNK; i += 16)
        for (int j = 0; j < 16; j++) {
            float magnitude = values[i + j] < 0 ? -values[i + j] : values[i + j];
            lane[j] = magnitude > lane[j] ? magnitude : lane[j];
            poison[j] += values[i + j] * 0.0f;
        }
    for (int j = 1; j < 16; j++) {
        lane[0] = lane[j] > lane[0] ? lane[j] : lane[0];
        poison[0] += poison[j];
    }
    float inverse = lane[0] > 1e-30f && poison[0] == 0.0f ? limit / lane[0] : 0.0f;
    /* Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits. */
    for (int i = 0; i < H3K_CHUNK; i++)
        q[i] = (int32_t)(h3k_bits_of_float(values[i] * inverse + 12582912.0f) - 0x4b400000u);
    return (inverse > 0.0f ? lane[0] / limit : 0.0f) + poison[0];
}

static inline void h3k_sum_chunk(const int32_t *restrict q, float d, h3k_chunk_sums *restrict sums)
{
    memset(sums, 0, sizeof *sums);
    for (int g = 0; g < 16; g++) {
        int32_t sum = 0;
        for (int j = 0; j < 16; j++)
            sum += q[16 * g + j];
        sums->sum16[g] = (float)sum;
    }
    for (int g = 0; g < 8; g++)
        sums->sum32[g] = sums->sum16[2 * g] + sums->sum16[2 * g + 1];
    sums->d = d;
}

static inline void h3k_pack_chunk(const float *restrict x, int64_t count, int32_t packing, void *restrict chunk)
{
    int32_t q[H3K_CHUNK];
    float d = h3k_round_chunk(x, count, packing == H3K_PACKING_I8 ? H3K_LIMIT_I8 : H3K_LIMIT_I16, q);
    if (packing == H3K_PACKING_I8) {
        h3k_chunk_i8 *out = chunk;
        for (int i = 0; i < H3K_CHUNK; i++)
            out->q[i] = (int8_t)q[i];
        h3k_sum_chunk(q, d, &out->sums);
    } else if (packing == H3K_PACKING_I16) {
        h3k_chunk_i16 *out = chunk;
        for (int i = 0; i < H3K_CHUNK; i++)
            out->q[i] = (int16_t)q[i];
        h3k_sum_chunk(q, d, &out->sums);
    } else {
        h3k_chunk_i8x2 *out = chunk;
        for (int i = 0; i < H3K_CHUNK; i++) {
            int32_t high = (q[i] + 128) >> 8;
            out->high[i] = (int8_t)high;
            out->low[i] = (int8_t)(q[i] - 256 * high);
        }
        h3k_sum_chunk(q, d, &out->sums);
    }
}

#endif
