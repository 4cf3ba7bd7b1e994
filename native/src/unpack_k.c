/* Weight rows to float32: the definition of the formats in blocks of 256 (blocks.h has the formulas).
 *
 * The trap: the bits above a format's low ones run through the block in another order than the low ones, and q3_k counts
 * a set high bit as nothing and a clear one as -4.
 */
#include <string.h>

#include "blocks.h"
#include "half.h"

/* Group g of 16 elements: two bits of one half of a 32-byte run. */
static void unpack_q2_k_group(const h3k_block_q2_k *block, int g, float *restrict out)
{
    float scale = h3k_float_of_f16(block->d) * (float)(block->scales[g] & 15);
    float min = h3k_float_of_f16(block->dmin) * (float)(block->scales[g] >> 4);
    const uint8_t *qs = block->qs + g / 8 * 32 + g % 2 * 16;
    int shift = g % 8 / 2 * 2;
    for (int j = 0; j < 16; j++)
        out[j] = scale * (float)(qs[j] >> shift & 3) - min;
}

static void unpack_q2_k(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                        float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + start / 256 * (int64_t)sizeof(h3k_block_q2_k);
    for (int64_t i = 0; i < count; i += 256, from += sizeof(h3k_block_q2_k)) {
        h3k_block_q2_k block;
        memcpy(&block, from, sizeof block);
        for (int g = 0; g < 16; g++)
            unpack_q2_k_group(&block, g, out + i + 16 * g);
    }
}

/* Group g of 16 elements; the mask holds two groups per bit. */
static void unpack_q3_k_group(const h3k_block_q3_k *block, int g, float *restrict out)
{
    const uint8_t *s = block->scales;
    int packed = (s[g % 8] >> g / 8 * 4 & 15) | (s[8 + g % 4] >> g / 4 * 2 & 3) << 4;
    float scale = h3k_float_of_f16(block->d) * (float)(packed - 32);
    const uint8_t *qs = block->qs + g / 8 * 32 + g % 2 * 16, *mask = block->hmask + g % 2 * 16;
    int shift = g % 8 / 2 * 2, bit = g / 2;
    for (int j = 0; j < 16; j++) {
        int low = qs[j] >> shift & 3, high = mask[j] >> bit & 1;
        out[j] = scale * (float)((low | high << 2) - 4);
    }
}

static void unpack_q3_k(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                        float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + start / 256 * (int64_t)sizeof(h3k_block_q3_k);
    for (int64_t i = 0; i < count; i += 256, from += sizeof(h3k_block_q3_k)) {
        h3k_block_q3_k block;
        memcpy(&block, from, sizeof block);
        for (int g = 0; g < 16; g++)
            unpack_q3_k_group(&block, g, out + i + 16 * g);
    }
}

/* Scale and minimum of group g, from the twelve bytes that q4_k and q5_k share. */
static inline void scale_and_min(const uint8_t *s, int g, float *scale, float *min)
{
    *scale = (float)(g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4);
    *min = (float)(g < 4 ? s[g + 4] & 63 : (s[g + 4] >> 4) | (s[g] >> 6) << 4);
}

/* Group g of 32 elements: nibbles of one half of a 32-byte run. */
static void unpack_q4_k_group(const h3k_block_q4_k *block, int g, float *restrict out)
{
    float scale, min;
    scale_and_min(block->scales, g, &scale, &min);
    float d = h3k_float_of_f16(block->d) * scale, m = h3k_float_of_f16(block->dmin) * min;
    const uint8_t *qs = block->qs + g / 2 * 32;
    int shift = g % 2 * 4;
    for (int j = 0; j < 32; j++)
        out[j] = d * (float)(qs[j] >> shift & 15) - m;
}

static void unpack_q4_k(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                        float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + start / 256 * (int64_t)sizeof(h3k_block_q4_k);
    for (int64_t i = 0; i < count; i += 256, from += sizeof(h3k_block_q4_k)) {
        h3k_block_q4_k block;
        memcpy(&block, from, sizeof block);
        for (int g = 0; g < 8; g++)
            unpack_q4_k_group(&block, g, out + i + 32 * g);
    }
}

/* Group g of 32 elements: as in q4_k, with bit g of the 32 high bytes above the nibble. */
static void unpack_q5_k_group(const h3k_block_q5_k *block, int g, float *restrict out)
{
    float scale, min;
    scale_and_min(block->scales, g, &scale, &min);
    float d = h3k_float_of_f16(block->d) * scale, m = h3k_float_of_f16(block->dmin) * min;
    const uint8_t *qs = block->qs + g / 2 * 32, *qh = block->qh;
    int shift = g % 2 * 4;
    for (int j = 0; j < 32; j++) {
        int low = qs[j] >> shift & 15, high = qh[j] >> g & 1;
        out[j] = d * (float)(low | high << 4) - m;
    }
}

static void unpack_q5_k(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                        float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + start / 256 * (int64_t)sizeof(h3k_block_q5_k);
    for (int64_t i = 0; i < count; i += 256, from += sizeof(h3k_block_q5_k)) {
        h3k_block_q5_k block;
        memcpy(&block, from, sizeof block);
        for (int g = 0; g < 8; g++)
            unpack_q5_k_group(&block, g, out + i + 32 * g);
    }
}

/* Group g of 16 elements: half g / 8 of the block, run g % 8 / 2 of 32 elements in it. */
static void unpack_q6_k_group(const h3k_block_q6_k *block, int g, float *restrict out)
{
    int half = g / 8, run = g % 8 / 2, at = g % 2 * 16;
    float scale = h3k_float_of_f16(block->d) * (float)block->scales[g];
    const uint8_t *ql = block->ql + 64 * half + run % 2 * 32 + at, *qh = block->qh + 32 * half + at;
    int low_shift = run / 2 * 4, high_shift = 2 * run;
    for (int j = 0; j < 16; j++) {
        int low = ql[j] >> low_shift & 15, high = qh[j] >> high_shift & 3;
        out[j] = scale * (float)((low | high << 4) - 32);
    }
}

static void unpack_q6_k(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                        float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + start / 256 * (int64_t)sizeof(h3k_block_q6_k);
    for (int64_t i = 0; i < count; i += 256, from += sizeof(h3k_block_q6_k)) {
        h3k_block_q6_k block;
        memcpy(&block, from, sizeof block);
        for (int g = 0; g < 16; g++)
            unpack_q6_k_group(&block, g, out + i + 16 * g);
    }
}

const h3k_format h3k_format_q2_k = {H3K_FORMAT_Q2_K, 256, 84, 4, 16, 0, unpack_q2_k};
const h3k_format h3k_format_q3_k = {H3K_FORMAT_Q3_K, 256, 110, 4, 16, 4, unpack_q3_k};
const h3k_format h3k_format_q4_k = {H3K_FORMAT_Q4_K, 256, 144, 4, 32, 0, unpack_q4_k};
const h3k_format h3k_format_q5_k = {H3K_FORMAT_Q5_K, 256, 176, 5, 32, 0, unpack_q5_k};
const h3k_format h3k_format_q6_k = {H3K_FORMAT_Q6_K, 256, 210, 6, 16, 32, unpack_q6_k};
