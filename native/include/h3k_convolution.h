/* Convolutions and what surrounds them in the decoders; part of h3k.h, with its conventions.
 *
 * Arrays are channels-last. Convolution weights are packed once by the caller into panels of eight output channels:
 *   panels[p][tap][c][j] = weight[out = 8 p + j][in = c][tap], zero where 8 p + j >= out, p < ceil(out / 8),
 * with taps in (time, row, column) order. Sum order of one output element: taps in order, channels innermost; runs of at
 * most 256 terms are summed one after the other from zero and added to the total in order, the bias last.
 */
#ifndef H3K_CONVOLUTION_H
#define H3K_CONVOLUTION_H

#include "h3k.h"

H3K_API int64_t h3k_conv_scratch_bytes(int64_t threads); /* of the three convolutions */

/* ---- conv.c
 * y[t, o] = bias[o] + sum_{tap, c} weight[o, c, tap] x[t stride + tap dilation - pad_left, c], x zero outside [0, time)
 * x: [time, in]; y: [(time + pad_left + pad_right - dilation (kernel - 1) - 1) / stride + 1, out]. */
typedef struct h3k_conv1d_args {
    h3k_call call;
    const float *x;
    const float *panels; /* taps 0..kernel-1 */
    const float *bias;   /* [out] or null */
    float *y;
    int64_t time, in, out, kernel, stride, dilation, pad_left, pad_right;
} h3k_conv1d_args;

/* y[t stride + tap - padding, o] += weight[c, o, tap] x[t, c], plus bias
 * x: [time, in]; y: [(time - 1) stride - 2 padding + kernel, out], at least one row.
 * Output row t uses the taps of phase r = (t + padding) % stride: r, r + stride, ... `panels` holds the phases
 * 0..stride-1 one after the other, each a convolution of its own with its taps in descending order (ascending source). */
typedef struct h3k_conv_transpose1d_args {
    h3k_call call;
    const float *x;
    const float *panels;
    const float *bias; /* [out] or null */
    float *y;
    int64_t time, in, out, kernel, stride, padding;
} h3k_conv_transpose1d_args;

/* Causal convolution over [frames, height, width, in]: height and width are reflected (the edge is not repeated) by
 * pad_before and pad_after, `history` frames precede the first: `past` or zeros.
 * y: [(history + frames - kernel_t) / stride_t + 1, (height + pads - kernel) / stride + 1, width likewise, out].
 * pad_before and pad_after are smaller than height and width. */
typedef struct h3k_conv3d_args {
    h3k_call call;
    const float *x;
    const float *past;   /* [history, height, width, in] or null */
    const float *panels; /* kernel_t * kernel * kernel taps */
    const float *bias;   /* [out] or null */
    float *y;
    int64_t frames, height, width, in, out;
    int64_t kernel_t, kernel, stride_t, stride, pad_before, pad_after, history;
} h3k_conv3d_args;

H3K_API h3k_status h3k_conv1d(const h3k_conv1d_args *a);
H3K_API h3k_status h3k_conv_transpose1d(const h3k_conv_transpose1d_args *a);
H3K_API h3k_status h3k_conv3d(const h3k_conv3d_args *a);

/* ---- group_norm.c
 * y = silu((x - mean) * rsqrt(var + eps) * weight + bias), mean and var over the positions of one frame and the channels
 * of one group. x, y: [frames, positions, channels], channels % groups == 0; y may be x.
 * Sums in float64, positions in blocks of 4096 added in order. */
typedef struct h3k_group_norm_silu_args {
    h3k_call call;
    const float *x;
    const float *weight; /* [channels] */
    const float *bias;   /* [channels] */
    float *y;
    int64_t frames, positions, channels, groups;
    double eps;
} h3k_group_norm_silu_args;

H3K_API int64_t h3k_group_norm_scratch_bytes(int64_t frames, int64_t positions, int64_t channels);
H3K_API h3k_status h3k_group_norm_silu(const h3k_group_norm_silu_args *a);

/* ---- snake.c: x, y: [time, channels]
 * snake: y = x + sin(alpha x)^2 / (alpha + 1e-9), alpha [channels]; y may be x.
 * anti_aliased_snake, with f = taps [12], a = exp(log_alpha), b = exp(log_beta) and L = time:
 *   u[2m]   = 2 sum_{i=-3..2} f[5 - 2i] x[m + i],  u[2m+1] = 2 sum_{i=-2..3} f[6 - 2i] x[m + i]   (x repeats its ends)
 *   u      += sin(a u)^2 / (b + 1e-9)
 *   y[m]    = sum_{k=0..11} f[k] u[2m + k - 5]                                                   (u repeats its ends)
 * x and y do not overlap. */
typedef struct h3k_snake_args {
    h3k_call call;
    const float *x;
    const float *alpha;
    float *y;
    int64_t time, channels;
} h3k_snake_args;

typedef struct h3k_anti_aliased_snake_args {
    h3k_call call;
    const float *x;
    const float *log_alpha; /* [channels] */
    const float *log_beta;  /* [channels] */
    const float *taps;      /* [12] */
    float *y;
    int64_t time, channels;
} h3k_anti_aliased_snake_args;

H3K_API int64_t h3k_snake_scratch_bytes(int64_t channels, int64_t threads); /* of both */
H3K_API h3k_status h3k_snake(const h3k_snake_args *a);
H3K_API h3k_status h3k_anti_aliased_snake(const h3k_anti_aliased_snake_args *a);

#endif
