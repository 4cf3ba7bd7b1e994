/* Weights stored for a rotated or scaled input, and rows of tables whose scales lie apart; part of h3k.h, with its
 * conventions.
 */
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

/* ---- rows_scaled.c
 * As h3k_embedding_*, for the formats of which blocks.h says that their scales lie apart: `scales` holds an f32 for each
 * row of the whole tensor (null: `scale` alone), or the tiles of nvfp4; its row scales_row belongs to row 0 of `table`. */
typedef struct h3k_scaled_embedding_args {
    h3k_call call;
    const int32_t *ids;  /* [rows] */
    const void *table;   /* [table_rows, columns] */
    const void *scales;
    float *y;            /* [rows, columns] */
    int64_t rows, columns, table_rows, first_row, scales_row;
    float scale;
    int32_t reserved; /* 0 */
} h3k_scaled_embedding_args;

H3K_API h3k_status h3k_embedding_i8_row(const h3k_scaled_embedding_args *a);
H3K_API h3k_status h3k_embedding_f8_e4m3(const h3k_scaled_embedding_args *a);
H3K_API h3k_status h3k_embedding_nvfp4(const h3k_scaled_embedding_args *a); /* columns % 16 == 0 */

#endif
