/* Integer products with the 256-bit dot product of AVX-VNNI: six rows by 16 columns. Its sums do not all fit 16 registers;
 * those of the finished groups wait in the first-level cache.
 */
#include <immintrin.h>

#define LANES 8
#define UNSIGNED_CODES 1
typedef int integers __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) integers dot(integers sum, integers codes, int x)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(codes), "x"(_mm256_set1_epi32(x)));
    return sum;
}

static inline __attribute__((always_inline)) __m256 fused(__m256 a, __m256 b, __m256 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

#include "integer_dot.h"

const h3k_integer_kernels h3k_integer_avxvnni = {COLUMNS, packing, h3k_pack_chunk, fill, multiply};
