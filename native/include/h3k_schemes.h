/* Inputs of weights that are stored rotated or scaled; part of h3k.h, with its conventions. */
#ifndef H3K_SCHEMES_H
#define H3K_SCHEMES_H

#include "h3k.h"

/* ---- hadamard.c
 * y[i, g group + c] = sum_d (x[i, g group + d] pre_scale[g group + d]) R[d][c],  R = H4 (x) H4 (x) ... [group, group],
 * H4 = 1/2 [[1,1,1,-1],[1,1,-1,1],[1,-1,1,1],[-1,1,1,1]]: orthogonal and symmetric, so that a second call undoes it.
 * group: a power of 4 that divides columns, or 1 for the pre-scale alone. y may be x. */
typedef struct h3k_rotate_rows_args {
    h3k_call call;
    const float *x;         /* [rows, columns] */
    const float *pre_scale; /* [columns] or null */
    float *y;               /* [rows, columns] */
    int64_t rows, columns, group;
} h3k_rotate_rows_args;

H3K_API h3k_status h3k_rotate_rows(const h3k_rotate_rows_args *a);

#endif
