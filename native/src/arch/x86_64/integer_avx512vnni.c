/* Integer products with AVX-512 VNNI: six rows by 32 columns in 24 of 32 registers.
 *
 * The dot product is written as assembly: gcc 12 adds moves around the intrinsic.
 */
#include <immintrin.h>

#define LANES 16
#define UNSIGNED_CODES 1
typedef int integers __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) integers dot(integers sum, integers codes, int x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(_mm512_set1_epi32(x)));
    return sum;
}

static inline __attribute__((always_inline)) __m512 fused(__m512 a, __m512 b, __m512 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

#include "integer_dot.h"

const h3k_integer_kernels h3k_integer_avx512vnni = {COLUMNS, packing, h3k_pack_chunk, fill, multiply};
