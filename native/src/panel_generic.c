/* The panel product at the platform's baseline instruction set: six rows of x by eight columns in twelve registers.
 *
 * Sixteen registers hold the twelve sums, two columns, one value of x and a product. Loading four values of x at once and
 * shuffling saves loads, but the compiler then spills sums: 21-30 against 33 GFLOP/s with gcc 12. Row counts 1 to 5 run the
 * same operations on fewer rows, so a row's result does not depend on how many rows share the call.
 */
#include "dispatch.h"
#include "panel.h"
#include "vector.h"

#define ROWS 6

static inline __attribute__((always_inline)) void tile(const int rows, const float *restrict x, int64_t ldx,
                                                       int64_t depth, const float *restrict panel,
                                                       float *restrict c, int64_t ldc)
{
    f32x4 low_sum[ROWS] = {{0}}, high_sum[ROWS] = {{0}};
    for (int64_t k = 0; k < depth; k++, panel += H3K_PANEL) {
        f32x4 low = h3k_load4(panel), high = h3k_load4(panel + 4);
        for (int i = 0; i < rows; i++) {
            f32x4 value = h3k_splat(x[i * ldx + k]);
            low_sum[i] += value * low;
            high_sum[i] += value * high;
        }
    }
    for (int i = 0; i < rows; i++, c += ldc) {
        h3k_store4(c, h3k_load4(c) + low_sum[i]);
        h3k_store4(c + 4, h3k_load4(c + 4) + high_sum[i]);
    }
}

void h3k_panel_product_generic(const float *restrict x, int64_t ldx, int64_t rows, int64_t depth,
                               const float *restrict panel, float *restrict c, int64_t ldc)
{
    for (; rows >= ROWS; rows -= ROWS, x += ROWS * ldx, c += ROWS * ldc)
        tile(ROWS, x, ldx, depth, panel, c, ldc);
    switch (rows) {
    case 5:
        tile(5, x, ldx, depth, panel, c, ldc);
        break;
    case 4:
        tile(4, x, ldx, depth, panel, c, ldc);
        break;
    case 3:
        tile(3, x, ldx, depth, panel, c, ldc);
        break;
    case 2:
        tile(2, x, ldx, depth, panel, c, ldc);
        break;
    case 1:
        tile(1, x, ldx, depth, panel, c, ldc);
        break;
    default:
        break;
    }
}
