/* The kernels that have instruction-set variants, behind one table per instruction set, one of them chosen per process.
 *
 * A variant is a file under src/arch/ compiled with its own flags (native.mk); dispatch.c lists the sets from fastest to
 * generic and takes the first one this processor runs. A set may share a group of kernels with a lesser one.
 */
#ifndef H3K_DISPATCH_H
#define H3K_DISPATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "row_kernels.h"

/* c[i][j] += sum_k x[i][k] * panel[k][j], i < rows, j < H3K_PANEL; k summed in order from zero, then added to c. */
typedef void h3k_panel_product(const float *restrict x, int64_t ldx, int64_t rows, int64_t depth,
                               const float *restrict panel, float *restrict c, int64_t ldc);

extern h3k_panel_product h3k_panel_product_generic; /* panel_generic.c */
extern h3k_panel_product h3k_panel_product_avx2;    /* arch/x86_64/panel_avx2.c */

typedef struct h3k_integer_kernels h3k_integer_kernels; /* integer.h */
extern const h3k_integer_kernels h3k_integer_avx512vnni, h3k_integer_avxvnni, h3k_integer_avx2, h3k_integer_dotprod;
typedef struct h3k_attention_kernels h3k_attention_kernels; /* attention.h */

/* arch/x86_64 and arch/arm64, attention_<isa>.c */
extern const h3k_attention_kernels h3k_attention_avx2, h3k_attention_avxvnni, h3k_attention_avx512vnni;
extern const h3k_attention_kernels h3k_attention_dotprod, h3k_attention_i8mm;

/* What one instruction set offers. */
typedef struct h3k_kernels {
    const char *name;
    bool (*runs_here)(void);
    h3k_panel_product *panel_product;
    const h3k_row_kernels *rows;
    const h3k_integer_kernels *integer; /* null: all modes are computed in float32 */
    const h3k_attention_kernels *attention; /* null: float32 alone */
} h3k_kernels;

const h3k_kernels *h3k_kernels_chosen(void);

#endif
