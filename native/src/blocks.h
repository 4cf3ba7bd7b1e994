/* The weight formats: GGUF block layouts, with formula and bits per weight, and how a run of elements is unpacked.
 *
 * Weight rows are read through memcpy: blocks lie at any byte offset of a mapped file. All formulas are single float32
 * operations in the order written, so unpacking is bit-exact against any other IEEE implementation without contraction.
 */
#ifndef H3K_BLOCKS_H
#define H3K_BLOCKS_H

#include <assert.h>
#include <stdint.h>

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

/* The largest block; unpack runs start at a multiple of it. */
#define H3K_CHUNK 256

/* out[0..count-1] = elements start.. of one row, start % H3K_CHUNK == 0, start + count <= row length. */
typedef void h3k_unpack(const uint8_t *restrict row, int64_t start, int64_t count, float *restrict out);

typedef struct h3k_format {
    int64_t block_elements;
    int64_t block_bytes;
    h3k_unpack *unpack;
} h3k_format;

extern const h3k_format h3k_format_f32, h3k_format_f16, h3k_format_bf16;
extern const h3k_format h3k_format_q8_0, h3k_format_q4_0, h3k_format_q4_k;

static inline int64_t h3k_row_bytes(const h3k_format *format, int64_t columns)
{
    return columns / format->block_elements * format->block_bytes;
}

#endif
