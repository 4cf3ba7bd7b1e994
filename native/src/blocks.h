/* The weight formats: GGUF block layouts, with formula and bits per weight, and how a run of elements is unpacked.
 *
 * Weight rows are read through memcpy: blocks lie at any byte offset of a mapped file. All formulas are single float32
 * operations in the order written, so unpacking is bit-exact against any other IEEE implementation without contraction.
 */
#ifndef H3K_BLOCKS_H
#define H3K_BLOCKS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "h3k.h"

/* 8.5 bits per weight: w = d * qs */
typedef struct {
    uint16_t d; /* f16 */
    int8_t qs[32];
} h3k_block_q8_0;
static_assert(sizeof(h3k_block_q8_0) == 34, "q8_0 block");

/* 4.5 bits per weight: w = d * (q - 8); low nibbles are elements 0..15, high nibbles 16..31 */
typedef struct {
    uint16_t d; /* f16 */
    uint8_t qs[16];
} h3k_block_q4_0;
static_assert(sizeof(h3k_block_q4_0) == 18, "q4_0 block");

/* 5 bits per weight: w = d * q + m; nibbles as in q4_0 */
typedef struct {
    uint16_t d; /* f16 */
    uint16_t m; /* f16 */
    uint8_t qs[16];
} h3k_block_q4_1;
static_assert(sizeof(h3k_block_q4_1) == 20, "q4_1 block");

/* 5.5 bits per weight: w = d * (q - 16); nibbles as in q4_0, bit i of qh (least significant first) is bit 4 of element i */
typedef struct {
    uint16_t d; /* f16 */
    uint8_t qh[4];
    uint8_t qs[16];
} h3k_block_q5_0;
static_assert(sizeof(h3k_block_q5_0) == 22, "q5_0 block");

/* 6 bits per weight: w = d * q + m; integers as in q5_0 */
typedef struct {
    uint16_t d; /* f16 */
    uint16_t m; /* f16 */
    uint8_t qh[4];
    uint8_t qs[16];
} h3k_block_q5_1;
static_assert(sizeof(h3k_block_q5_1) == 24, "q5_1 block");

/* 2.625 bits per weight, sixteen groups of 16: w = (d * scale_g) * q - (dmin * min_g); scales[g] = scale_g | min_g << 4.
 * Bytes 32h..32h+31 of qs hold elements 128h..128h+127: bits 2r and 2r + 1 are 32r..32r+31 of them. */
typedef struct {
    uint8_t scales[16];
    uint8_t qs[64];
    uint16_t d;    /* f16 */
    uint16_t dmin; /* f16 */
} h3k_block_q2_k;
static_assert(sizeof(h3k_block_q2_k) == 84, "q2_k block");

/* 3.4375 bits per weight, sixteen groups of 16: w = (d * (scale_g - 32)) * (q - 4), scale of 6 bits.
 * qs holds the low two bits of q as in q2_k; bit b of hmask[j] is bit 2 of element 32b + j.
 * scale_g: low four bits in nibble g / 8 of scales[g % 8], top two in bits 2 (g / 4) of scales[8 + g % 4]. */
typedef struct {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint16_t d; /* f16 */
} h3k_block_q3_k;
static_assert(sizeof(h3k_block_q3_k) == 110, "q3_k block");

/* 4.5 bits per weight, eight groups of 32: w = (d * scale_g) * q - (dmin * min_g), scale and min of 6 bits.
 * Byte run j of 32 (j = 0..3) holds group 2j in its low nibbles and group 2j + 1 in its high nibbles.
 * scales[g], scales[g + 4], g < 4: low 6 bits are scale_g and min_g, the top two bits belong to group g + 4, whose
 * low 4 bits are in scales[g + 8] (scale low nibble, min high nibble). */
typedef struct {
    uint16_t d;    /* f16 */
    uint16_t dmin; /* f16 */
    uint8_t scales[12];
    uint8_t qs[128];
} h3k_block_q4_k;
static_assert(sizeof(h3k_block_q4_k) == 144, "q4_k block");

/* 5.5 bits per weight: q4_k with a fifth bit; bit g of qh[j] is bit 4 of element 32g + j */
typedef struct {
    uint16_t d;    /* f16 */
    uint16_t dmin; /* f16 */
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
} h3k_block_q5_k;
static_assert(sizeof(h3k_block_q5_k) == 176, "q5_k block");

/* 6.5625 bits per weight, sixteen groups of 16: w = (d * scale_g) * (q - 32).
 * Element 128h + 32r + j, j < 32: low four bits in nibble r / 2 of ql[64h + 32 (r % 2) + j], top two in bits 2r of
 * qh[32h + j]. */
typedef struct {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d; /* f16 */
} h3k_block_q6_k;
static_assert(sizeof(h3k_block_q6_k) == 210, "q6_k block");

/* ---- formats whose scales lie in a tensor of their own (unpack_schemes.c)
 * i8_row   8 bits per weight, an f32 per row or none:   w = q * (row_scale * scale), q signed
 * f8_e4m3  8 bits per weight, an f32 per row or none:   w = q * (row_scale * scale);
 *          q: sign, four bits of exponent with bias 7, three of mantissa; 0x7f and 0xff are NaN, there is no infinity
 * nvfp4    4.5 bits per weight, blocks of 16:           w = q * (block_scale * scale), block_scale f8_e4m3
 *          8 bytes per block, elements 2j and 2j + 1 in the high and the low nibble of byte j (not low first);
 *          q of e2m1: sign, two bits of exponent with bias 1, one of mantissa: 0 0.5 1 1.5 2 3 4 6
 *          Block scales lie in tiles of 128 rows by 4 blocks, tiles of the first 128 rows first, left to right:
 *          byte 512 tile + 16 (row % 32) + 4 (row % 128 / 32) + block % 4, padded to whole tiles. */
#define H3K_NVFP4_BLOCK 16
#define H3K_NVFP4_BLOCK_BYTES 8
#define H3K_NVFP4_TILE_ROWS 128
#define H3K_NVFP4_TILE_BLOCKS 4
#define H3K_NVFP4_TILE_BYTES 512

extern const float h3k_e4m3_values[256]; /* by code; looking up is faster than computing in portable C */
extern const float h3k_e2m1_values[16];

/* The scales of a weight whose rows do not carry them. `bytes` at any address. */
typedef struct {
    const uint8_t *bytes; /* f32 per row, or the tiles of nvfp4; null (not for nvfp4): `scale` alone */
    int64_t first_row;    /* the row of `bytes` that belongs to row 0 of the weight */
    float scale;          /* of the whole tensor */
} h3k_scales;

/* The largest block; unpack runs start at a multiple of it. */
#define H3K_CHUNK 256

typedef struct h3k_format h3k_format;

/* Rows of one stored matrix of k columns. */
typedef struct {
    const h3k_format *format;
    const uint8_t *data; /* row 0 */
    int64_t k;
    h3k_scales scales; /* of the formats that have them */
} h3k_weight;

/* out[0..count-1] = elements start.. of a row, start % H3K_CHUNK == 0, start + count <= k. */
typedef void h3k_unpack(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count, float *restrict out);

struct h3k_format {
    int32_t id; /* H3K_FORMAT_* */
    int32_t block_elements, block_bytes;
    /* As integers w = scale * code + bias (codes.h), one scale for `group` elements: 4, 5 or 6 bits are unsigned and below
     * 16, 32 or 64, 8 bits are signed and without bias. 0: the format has no integer form.
     * zero: the code that means nothing, bias = -zero * scale; 0 for biases of their own. */
    int32_t code_bits, group, zero;
    h3k_unpack *unpack;
};

extern const h3k_format h3k_format_f32, h3k_format_f16, h3k_format_bf16;
extern const h3k_format h3k_format_q8_0, h3k_format_q4_0, h3k_format_q4_1, h3k_format_q5_0, h3k_format_q5_1;
extern const h3k_format h3k_format_q2_k, h3k_format_q3_k, h3k_format_q4_k, h3k_format_q5_k, h3k_format_q6_k;
extern const h3k_format h3k_format_i8_row, h3k_format_f8_e4m3, h3k_format_nvfp4;

/* The format with this number, or null. formats.c */
const h3k_format *h3k_format_of(int32_t id);

static inline int64_t h3k_row_bytes(const h3k_format *format, int64_t columns)
{
    return columns / format->block_elements * format->block_bytes;
}

static inline const uint8_t *h3k_weight_row(const h3k_weight *w, int64_t row)
{
    return w->data + row * h3k_row_bytes(w->format, w->k);
}

/* Whether scales as given suit a format. */
static inline bool h3k_scales_fit(const h3k_format *format, const void *scales, int64_t first_row)
{
    if (format->id < H3K_FORMAT_I8_ROW)
        return scales == NULL && first_row == 0;
    return first_row >= 0 && (scales != NULL || format->id != H3K_FORMAT_NVFP4);
}

/* Scale of a row of i8_row and f8_e4m3. */
static inline float h3k_row_scale(const h3k_weight *w, int64_t row)
{
    float own;
    if (w->scales.bytes == NULL)
        return w->scales.scale;
    memcpy(&own, w->scales.bytes + (w->scales.first_row + row) * (int64_t)sizeof own, sizeof own);
    return own * w->scales.scale;
}

/* The scales of blocks `block`..block+3 of a row of nvfp4, block % 4 == 0. */
static inline const uint8_t *h3k_nvfp4_scales(const h3k_weight *w, int64_t row, int64_t block)
{
    const int64_t tile_columns = H3K_NVFP4_BLOCK * H3K_NVFP4_TILE_BLOCKS, r = w->scales.first_row + row;
    int64_t tile = r / H3K_NVFP4_TILE_ROWS * ((w->k + tile_columns - 1) / tile_columns) + block / H3K_NVFP4_TILE_BLOCKS;
    return w->scales.bytes + tile * H3K_NVFP4_TILE_BYTES + r % 32 * 16 + r % H3K_NVFP4_TILE_ROWS / 32 * 4;
}

#endif
