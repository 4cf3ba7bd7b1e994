/* Kernels that work on one row at a time, behind the table of dispatch.h: norms, residuals, rotation, SwiGLU.
 *
 * Sums of squares are float64 in every variant: sixteen partial sums, element i in sum i % 16, folded in halves (norm.h).
 * A float32 square is exact in float64, so every variant divides by the same number.
 */
#ifndef H3K_ROW_KERNELS_H
#define H3K_ROW_KERNELS_H

#include <stdint.h>

/* y = rms_norm(x) * weight, then y * (1 + scale) + shift. y may be x. */
typedef struct h3k_norm_row {
    const float *x;
    const float *weight; /* or null */
    const float *scale;  /* or null: neither scale nor shift */
    const float *shift;
    float *y;
    int64_t columns;
    double eps;
} h3k_norm_row;

/* `count` heads side by side, each normed and rotated in place; cos and sin have `half` elements. */
typedef struct h3k_head_run {
    float *heads;
    const float *weight; /* [head_dim] or null */
    const float *cos;
    const float *sin;
    int64_t count, head_dim, half;
    double eps;
} h3k_head_run;

typedef struct h3k_row_kernels {
    void (*norm)(const h3k_norm_row *row);
    void (*residual)(float *h, const float *y, const float *gate, int64_t columns); /* h += gate * y */
    void (*residual_by_number)(float *h, const float *y, float gate, int64_t columns);
    /* h += gate * y, then the norm of that; norm->x is h, norm->y may be y */
    void (*residual_norm)(float *h, const float *y, const float *gate, const h3k_norm_row *norm);
    void (*norm_rope)(const h3k_head_run *run);
    void (*swiglu)(const float *gate, const float *value, float *y, int64_t count); /* y may be gate or value */
} h3k_row_kernels;

extern const h3k_row_kernels h3k_row_kernels_generic; /* row_generic.c */
#if defined(__x86_64__)
extern const h3k_row_kernels h3k_row_kernels_avx2;       /* arch/x86_64/ */
extern const h3k_row_kernels h3k_row_kernels_avx512vnni;
#elif defined(__aarch64__)
extern const h3k_row_kernels h3k_row_kernels_neon; /* arch/arm64/ */
#endif

#endif
