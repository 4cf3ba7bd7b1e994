/* Weight rows to float32: the definition of the plain formats and of those in blocks of 32 (blocks.h has the formulas). */
#include <string.h>

#include "blocks.h"
#include "half.h"

static void unpack_f32(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                        float *restrict out)
{
    memcpy(out, h3k_weight_row(w, row) + 4 * start, (size_t)count * 4);
}

static void unpack_f16(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                        float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + 2 * start;
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, 2);
        out[i] = h3k_float_of_f16(half);
    }
}

static void unpack_bf16(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                        float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + 2 * start;
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, 2);
        out[i] = h3k_float_of_bf16(half);
    }
}

static void unpack_q8_0(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                        float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + start / 32 * (int64_t)sizeof(h3k_block_q8_0);
    for (int64_t i = 0; i < count; i += 32, from += sizeof(h3k_block_q8_0)) {
        h3k_block_q8_0 block;
        memcpy(&block, from, sizeof block);
        float d = h3k_float_of_f16(block.d);
        for (int j = 0; j < 32; j++)
            out[i + j] = d * (float)block.qs[j];
    }
}

static void unpack_q4_0(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                        float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + start / 32 * (int64_t)sizeof(h3k_block_q4_0);
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

static void unpack_q4_1(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                        float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + start / 32 * (int64_t)sizeof(h3k_block_q4_1);
    for (int64_t i = 0; i < count; i += 32, from += sizeof(h3k_block_q4_1)) {
        h3k_block_q4_1 block;
        memcpy(&block, from, sizeof block);
        float d = h3k_float_of_f16(block.d), m = h3k_float_of_f16(block.m);
        for (int j = 0; j < 16; j++) {
            out[i + j] = d * (float)(block.qs[j] & 15) + m;
            out[i + j + 16] = d * (float)(block.qs[j] >> 4) + m;
        }
    }
}

/* The 32 integers of five bits, 0..31. */
static inline void integers_of_q5(const uint8_t *restrict qh, const uint8_t *restrict qs, int *restrict q)
{
    for (int j = 0; j < 16; j++) {
        int low = qh[j / 8] >> j % 8, high = qh[2 + j / 8] >> j % 8;
        q[j] = (qs[j] & 15) | (low & 1) << 4;
        q[j + 16] = qs[j] >> 4 | (high & 1) << 4;
    }
}

static void unpack_q5_0(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                        float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + start / 32 * (int64_t)sizeof(h3k_block_q5_0);
    for (int64_t i = 0; i < count; i += 32, from += sizeof(h3k_block_q5_0)) {
        h3k_block_q5_0 block;
        memcpy(&block, from, sizeof block);
        float d = h3k_float_of_f16(block.d);
        int q[32];
        integers_of_q5(block.qh, block.qs, q);
        for (int j = 0; j < 32; j++)
            out[i + j] = d * (float)(q[j] - 16);
    }
}

static void unpack_q5_1(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                        float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + start / 32 * (int64_t)sizeof(h3k_block_q5_1);
    for (int64_t i = 0; i < count; i += 32, from += sizeof(h3k_block_q5_1)) {
        h3k_block_q5_1 block;
        memcpy(&block, from, sizeof block);
        float d = h3k_float_of_f16(block.d), m = h3k_float_of_f16(block.m);
        int q[32];
        integers_of_q5(block.qh, block.qs, q);
        for (int j = 0; j < 32; j++)
            out[i + j] = d * (float)q[j] + m;
    }
}

const h3k_format h3k_format_f32 = {H3K_FORMAT_F32, 1, 4, 0, 0, 0, unpack_f32};
const h3k_format h3k_format_f16 = {H3K_FORMAT_F16, 1, 2, 0, 0, 0, unpack_f16};
const h3k_format h3k_format_bf16 = {H3K_FORMAT_BF16, 1, 2, 0, 0, 0, unpack_bf16};
const h3k_format h3k_format_q8_0 = {H3K_FORMAT_Q8_0, 32, 34, 8, 32, 0, unpack_q8_0};
const h3k_format h3k_format_q4_0 = {H3K_FORMAT_Q4_0, 32, 18, 4, 32, 8, unpack_q4_0};
const h3k_format h3k_format_q4_1 = {H3K_FORMAT_Q4_1, 32, 20, 4, 32, 0, unpack_q4_1};
const h3k_format h3k_format_q5_0 = {H3K_FORMAT_Q5_0, 32, 22, 5, 32, 16, unpack_q5_0};
const h3k_format h3k_format_q5_1 = {H3K_FORMAT_Q5_1, 32, 24, 5, 32, 0, unpack_q5_1};
