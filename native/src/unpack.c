/* Weight rows to float32: the definition of every format (blocks.h has the formulas). */
#include <string.h>

#include "blocks.h"
#include "half.h"

static void unpack_f32(const uint8_t *restrict row, int64_t start, int64_t count, float *restrict out)
{
    memcpy(out, row + 4 * start, (size_t)count * 4);
}

static void unpack_f16(const uint8_t *restrict row, int64_t start, int64_t count, float *restrict out)
{
    const uint8_t *from = row + 2 * start;
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, 2);
        out[i] = h3k_float_of_f16(half);
    }
}

static void unpack_bf16(const uint8_t *restrict row, int64_t start, int64_t count, float *restrict out)
{
    const uint8_t *from = row + 2 * start;
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, 2);
        out[i] = h3k_float_of_bf16(half);
    }
}

static void unpack_q8_0(const uint8_t *restrict row, int64_t start, int64_t count, float *restrict out)
{
    const uint8_t *from = row + start / 32 * (int64_t)sizeof(h3k_block_q8_0);
    for (int64_t i = 0; i < count; i += 32, from += sizeof(h3k_block_q8_0)) {
        h3k_block_q8_0 block;
        memcpy(&block, from, sizeof block);
        float d = h3k_float_of_f16(block.d);
        for (int j = 0; j < 32; j++)
            out[i + j] = d * (float)block.qs[j];
    }
}

static void unpack_q4_0(const uint8_t *restrict row, int64_t start, int64_t count, float *restrict out)
{
    const uint8_t *from = row + start / 32 * (int64_t)sizeof(h3k_block_q4_0);
    for (int64_t i = 0; i < count; i += 32, from += sizeof(h3k_block_q4_0)) {
        h3k_block_q4_0 block;
        memcpy(&block, from, sizeof block);
        float d = h3k_float_of_f16(block.d);
        for (int j = 0; j < 16; j++) {
            out[i + j] = d * (float)((block.qs[j] & 15) - 8);
            out[i + j + 16] = d * (float)((block.qs[j] >> 4) - 8);
        }
    }
}

/* Group g of 32 elements: nibbles of one half of a 32-byte run. */
static void unpack_q4_k_group(const h3k_block_q4_k *block, int g, float *restrict out)
{
    const uint8_t *s = block->scales;
    int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
    int min = g < 4 ? s[g + 4] & 63 : (s[g + 4] >> 4) | (s[g] >> 6) << 4;
    float d = h3k_float_of_f16(block->d) * (float)scale;
    float m = h3k_float_of_f16(block->dmin) * (float)min;
    const uint8_t *qs = block->qs + g / 2 * 32;
    int shift = g % 2 * 4;
    for (int j = 0; j < 32; j++)
        out[j] = d * (float)((qs[j] >> shift) & 15) - m;
}

static void unpack_q4_k(const uint8_t *restrict row, int64_t start, int64_t count, float *restrict out)
{
    const uint8_t *from = row + start / 256 * (int64_t)sizeof(h3k_block_q4_k);
    for (int64_t i = 0; i < count; i += 256, from += sizeof(h3k_block_q4_k)) {
        h3k_block_q4_k block;
        memcpy(&block, from, sizeof block);
        for (int g = 0; g < 8; g++)
            unpack_q4_k_group(&block, g, out + i + 32 * g);
    }
}

const h3k_format h3k_format_f32 = {1, 4, unpack_f32};
const h3k_format h3k_format_f16 = {1, 2, unpack_f16};
const h3k_format h3k_format_bf16 = {1, 2, unpack_bf16};
const h3k_format h3k_format_q8_0 = {32, 34, unpack_q8_0};
const h3k_format h3k_format_q4_0 = {32, 18, unpack_q4_0};
const h3k_format h3k_format_q4_k = {256, 144, unpack_q4_k};
