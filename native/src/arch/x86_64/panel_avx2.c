/* The panel product with AVX2 and FMA: twelve rows of x by the eight columns of a panel in twelve registers.
 *
 * Sixteen registers hold the twelve sums, the panel's columns and broadcast values of x. Smaller row counts run the
 * same operations on fewer rows, so a row's result does not depend on how many rows share the call. A product and its
 * sum round once: results differ from the generic ones in the last bits, and repeat for any m and number of threads.
 */
#include <immintrin.h>

#include "dispatch.h"
#include "panel.h"

#define ROWS 12
#define UNROLLED _Pragma("GCC unroll 12") /* otherwise gcc 12 keeps the sums of the smaller tiles in memory */
#define GROUP 3 /* rows addressed from one pointer */

static inline __attribute__((always_inline)) void tile(const int rows, const float *restrict x, int64_t ldx,
                                                       int64_t depth, const float *restrict panel,
                                                       float *restrict c, int64_t ldc)
{
    __m256 sum[ROWS];
    const float *from[ROWS / GROUP];
    UNROLLED for (int i = 0; i < rows; i++)
        sum[i] = _mm256_setzero_ps();
    UNROLLED for (int g = 0; g * GROUP < rows; g++)
        from[g] = x + g * GROUP * ldx;
    for (int64_t k = 0; k < depth; k++, panel += H3K_PANEL) {
        __m256 columns = _mm256_loadu_ps(panel);
        UNROLLED for (int i = 0; i < rows; i++)
            sum[i] = _mm256_fmadd_ps(_mm256_broadcast_ss(from[i / GROUP] + i % GROUP * ldx + k), columns, sum[i]);
    }
    UNROLLED for (int i = 0; i < rows; i++, c += ldc)
        _mm256_storeu_ps(c, _mm256_add_ps(_mm256_loadu_ps(c), sum[i]));
}

void h3k_panel_product_avx2(const float *restrict x, int64_t ldx, int64_t rows, int64_t depth,
                            const float *restrict panel, float *restrict c, int64_t ldc)
{
    for (; rows >= ROWS; rows -= ROWS, x += ROWS * ldx, c += ROWS * ldc)
        tile(ROWS, x, ldx, depth, panel, c, ldc);
    if (rows >= 8) {
        tile(8, x, ldx, depth, panel, c, ldc);
        rows -= 8, x += 8 * ldx, c += 8 * ldc;
    }
    if (rows >= 4) {
        tile(4, x, ldx, depth, panel, c, ldc);
        rows -= 4, x += 4 * ldx, c += 4 * ldc;
    }
    if (rows >= 2) {
        tile(2, x, ldx, depth, panel, c, ldc);
        rows -= 2, x += 2 * ldx, c += 2 * ldc;
    }
    if (rows == 1)
        tile(1, x, ldx, depth, panel, c, ldc);
}
