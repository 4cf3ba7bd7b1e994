/* Products of integers: rows of x packed with one scale per 256 elements, times a panel of weight columns unpacked to
 * integers, one chunk of 256 at a time. What every instruction set's file agrees on with matmul.c.
 *
 * y += d_x * (sum_g scale_g * (sum_i q_x q_w) + bias_g * (sum_i q_x)): the inner sums are exact, the outer ones float32,
 * group after group. So a result depends neither on how rows are tiled nor on how many share the call.
 */
#ifndef H3K_INTEGER_H
#define H3K_INTEGER_H

#include <stdalign.h>

#include "codes.h"
#include "dispatch.h"

/* One row's chunk. Sums are those of q, unscaled, over runs of 16 and 32. */
typedef struct {
    float sum16[16];
    float sum32[8];
    float d;
    float zero[7];
} h3k_chunk_sums;

typedef struct {
    int8_t q[H3K_CHUNK];
    h3k_chunk_sums sums;
} h3k_chunk_i8;

typedef struct {
    int16_t q[H3K_CHUNK];
    h3k_chunk_sums sums;
} h3k_chunk_i16;

typedef struct {
    int8_t high[H3K_CHUNK], low[H3K_CHUNK];
    h3k_chunk_sums sums;
} h3k_chunk_i8x2;

static inline int64_t h3k_chunk_bytes(int32_t packing)
{
    switch (packing) {
    case H3K_PACKING_I8:
        return sizeof(h3k_chunk_i8);
    case H3K_PACKING_I16:
        return sizeof(h3k_chunk_i16);
    case H3K_PACKING_I8X2:
        return sizeof(h3k_chunk_i8x2);
    default:
        return 0;
    }
}

/* Packed rows lie chunk by chunk: [ceil(columns / 256)][rows]. */
static inline uint8_t *h3k_packed_chunk(void *packed, int32_t packing, int64_t rows, int64_t chunk, int64_t row)
{
    return (uint8_t *)packed + (chunk * rows + row) * h3k_chunk_bytes(packing);
}

#define H3K_PANEL_BYTES (32 * 1024) /* the largest panel of any instruction set */

/* One chunk of a weight matrix: columns n0.. (a panel may have fewer than panel_columns), elements k0.. of each. */
typedef struct {
    const h3k_weight *weight;
    int64_t n0, columns, k0, depth;
    int32_t mode;
} h3k_panel_source;

struct h3k_integer_kernels {
    int32_t panel_columns; /* divides 64 */
    /* What x is packed as for this format and mode; NONE: the float product serves it. */
    int32_t (*packing)(const h3k_format *format, int32_t mode);
    /* One row's chunk of `count` <= 256 floats into the layout of `packing`, zeros behind. */
    void (*pack)(const float *restrict x, int64_t count, int32_t packing, void *restrict chunk);
    void (*fill)(const h3k_panel_source *source, int32_t packing, void *restrict panel);
    /* c[row][panel_columns] += rows of chunks times the panel. */
    void (*multiply)(const void *restrict panel, const void *restrict chunks, int64_t rows, float *restrict c);
};

#endif
