/* Weight rows whose scales lie apart, to float32: the definition of these formats (blocks.h has the formulas).
 *
 * The scale of the tensor times that of the row or block is rounded first, its product with the code second.
 */
#include <math.h>

#include "blocks.h"

/* Eight codes of one exponent. */
#define RUN(sign, unit)                                                                                                \
    sign(8 * (unit)), sign(9 * (unit)), sign(10 * (unit)), sign(11 * (unit)), sign(12 * (unit)), sign(13 * (unit)),    \
        sign(14 * (unit)), sign(15 * (unit))
#define SUBNORMALS(sign)                                                                                               \
    sign 0.0f, sign 0x1p-9f, sign 0x2p-9f, sign 0x3p-9f, sign 0x4p-9f, sign 0x5p-9f, sign 0x6p-9f, sign 0x7p-9f
#define HALF(sign)                                                                                                     \
    SUBNORMALS(sign), RUN(sign, 0x1p-9f), RUN(sign, 0x1p-8f), RUN(sign, 0x1p-7f), RUN(sign, 0x1p-6f),                  \
        RUN(sign, 0x1p-5f), RUN(sign, 0x1p-4f), RUN(sign, 0x1p-3f), RUN(sign, 0x1p-2f), RUN(sign, 0x1p-1f),            \
        RUN(sign, 0x1p0f), RUN(sign, 0x1p1f), RUN(sign, 0x1p2f), RUN(sign, 0x1p3f), RUN(sign, 0x1p4f),                 \
        sign 256.0f, sign 288.0f, sign 320.0f, sign 352.0f, sign 384.0f, sign 416.0f, sign 448.0f, sign NAN

const float h3k_e4m3_values[256] = {HALF(+), HALF(-)};

const float h3k_e2m1_values[16] = {
    0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f,
};

static void unpack_i8_row(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count, float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + start;
    float d = h3k_row_scale(w, row);
    for (int64_t i = 0; i < count; i++)
        out[i] = d * (float)(int8_t)from[i];
}

static void unpack_f8_e4m3(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count, float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + start;
    float d = h3k_row_scale(w, row);
    for (int64_t i = 0; i < count; i++)
        out[i] = d * h3k_e4m3_values[from[i]];
}

static void unpack_nvfp4_block(const uint8_t *restrict from, float d, float *restrict out)
{
    float q[H3K_NVFP4_BLOCK];
    for (int j = 0; j < H3K_NVFP4_BLOCK_BYTES; j++) {
        q[2 * j] = h3k_e2m1_values[from[j] >> 4];
        q[2 * j + 1] = h3k_e2m1_values[from[j] & 15];
    }
    for (int j = 0; j < H3K_NVFP4_BLOCK; j++)
        out[j] = d * q[j];
}

static void unpack_nvfp4(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count, float *restrict out)
{
    const uint8_t *from = h3k_weight_row(w, row) + start / 2, *steps = NULL;
    int64_t first = start / H3K_NVFP4_BLOCK, end = first + count / H3K_NVFP4_BLOCK;
    for (int64_t block = first; block < end; block++, from += H3K_NVFP4_BLOCK_BYTES, out += H3K_NVFP4_BLOCK) {
        if (block % H3K_NVFP4_TILE_BLOCKS == 0) /* start is a multiple of H3K_CHUNK, so the first block is, too */
            steps = h3k_nvfp4_scales(w, row, block);
        unpack_nvfp4_block(from, h3k_e4m3_values[steps[block % H3K_NVFP4_TILE_BLOCKS]] * w->scales.scale, out);
    }
}

const h3k_format h3k_format_i8_row = {H3K_FORMAT_I8_ROW, 1, 1, 8, H3K_CHUNK, 0, unpack_i8_row};
const h3k_format h3k_format_f8_e4m3 = {H3K_FORMAT_F8_E4M3, 1, 1, 0, 0, 0, unpack_f8_e4m3};
const h3k_format h3k_format_nvfp4 = {H3K_FORMAT_NVFP4, 16, 8, 5, 16, 16, unpack_nvfp4};
