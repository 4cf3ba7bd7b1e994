/* Integer products with sdot: six rows by eight columns in 24 of 32 registers. */
#include <arm_neon.h>
#include <stdint.h>

#define LANES 4
#define UNSIGNED_CODES 0
typedef int32_t integers __attribute__((vector_size(16)));

static inline __attribute__((always_inline)) integers dot(integers sum, integers codes, int32_t x)
{
    return (integers)vdotq_s32((int32x4_t)sum, (int8x16_t)codes, vreinterpretq_s8_s32(vdupq_n_s32(x)));
}

static inline __attribute__((always_inline)) float32x4_t fused(float32x4_t a, float32x4_t b, float32x4_t c)
{
    return vfmaq_f32(c, a, b);
}

#include "integer_dot.h"

const h3k_integer_kernels h3k_integer_dotprod = {COLUMNS, packing, h3k_pack_chunk, fill, multiply};
