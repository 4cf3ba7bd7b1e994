/* One engine for every convolution here: gather source runs into a tile, multiply it with the weight panels.
 *
 * A convolution is seen as output rows = lines x positions. Along a line the source index is
 *   position * stride + tap * dilation - pad, tap < inner,
 * reflected or zero outside [0, length); `outer` source lines feed one output line (kernel time x kernel height in 3-D,
 * one in 1-D). Terms run over (outer, inner, channel).
 */
#ifndef H3K_CONV_TILE_H
#define H3K_CONV_TILE_H

#include "call.h"

typedef struct h3k_conv_tile h3k_conv_tile;

/* First element of the source line that outer tap `outer` of output line `line` reads; null: a line of zeros. */
typedef const float *h3k_source_line(const h3k_conv_tile *conv, int64_t line, int64_t outer);

struct h3k_conv_tile {
    const void *args;
    h3k_source_line *source_line;
    int64_t in, out, outer, inner;
    int64_t length, stride, dilation, pad; /* along a line; pad may be negative */
    int64_t lines, positions;              /* of the output */
    const float *panels;                   /* [ceil(out / 8)][outer * inner * in][8] */
    const float *bias;
    float *y;
    int64_t ldy;
    bool reflect;
};

/* Needs h3k_conv_scratch_bytes() of scratch in `call`. */
h3k_status h3k_conv_tile_run(const h3k_call *call, const h3k_conv_tile *conv);

/* Index of the mirrored source for i in (-n, 2n - 1); the edge itself is not repeated. */
static inline int64_t h3k_reflect(int64_t i, int64_t n)
{
    if (i < 0)
        return -i;
    return i < n ? i : 2 * (n - 1) - i;
}

#endif
