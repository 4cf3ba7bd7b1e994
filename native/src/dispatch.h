/* The kernels that have instruction-set variants, behind one table chosen once per process.
 *
 * A variant is a file under src/arch/ compiled with its own flags; dispatch.c lists the variants from fastest to generic
 * and takes the first one this processor can run.
 */
#ifndef H3K_DISPATCH_H
#define H3K_DISPATCH_H

#include <stdint.h>

/* c[i][j] += sum_k x[i][k] * panel[k][j], i < rows, j < H3K_PANEL; k summed in order from zero, then added to c. */
typedef void h3k_panel_product(const float *restrict x, int64_t ldx, int64_t rows, int64_t depth,
                               const float *restrict panel, float *restrict c, int64_t ldc);

typedef struct h3k_kernels {
    const char *name;
    h3k_panel_product *panel_product;
} h3k_kernels;

extern const h3k_kernels h3k_kernels_generic; /* panel_generic.c */

const h3k_kernels *h3k_kernels_chosen(void);

#endif
