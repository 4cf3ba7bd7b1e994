/* Eight lanes in two NEON registers, for attention_integer.h. */
#ifndef H3K_ATTENTION_LANES_ARM_H
#define H3K_ATTENTION_LANES_ARM_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

typedef float f8 __attribute__((vector_size(32)));
typedef int32_t i8 __attribute__((vector_size(32)));
typedef uint32_t u8 __attribute__((vector_size(32)));

#define LANE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")

#define LOW_HALF(x) __builtin_shufflevector(x, x, 0, 1, 2, 3)
#define HIGH_HALF(x) __builtin_shufflevector(x, x, 4, 5, 6, 7)
#define BOTH(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7)

LANE f8 lane_fma(f8 a, f8 b, f8 c)
{
    float32x4_t low = vfmaq_f32(LOW_HALF(c), LOW_HALF(a), LOW_HALF(b));
    float32x4_t high = vfmaq_f32(HIGH_HALF(c), HIGH_HALF(a), HIGH_HALF(b));
    return BOTH(low, high);
}

/* NaN where either is. */
LANE f8 lane_max(f8 a, f8 b)
{
    float32x4_t low = vmaxq_f32(LOW_HALF(a), LOW_HALF(b)), high = vmaxq_f32(HIGH_HALF(a), HIGH_HALF(b));
    return BOTH(low, high);
}

LANE i8 lane_round(f8 x)
{
    int32x4_t low = vcvtnq_s32_f32(LOW_HALF(x)), high = vcvtnq_s32_f32(HIGH_HALF(x));
    return BOTH(low, high);
}

LANE f8 lane_float(i8 x)
{
    float32x4_t low = vcvtq_f32_s32(LOW_HALF(x)), high = vcvtq_f32_s32(HIGH_HALF(x));
    return BOTH(low, high);
}

/* Words in the order: lanes 0-3 of x[0], x[1], lanes 4-7 of both; the same for each further pair. */
LANE void lane_store_words(const i8 *x, int16_t *to)
{
    for (int j = 0; j < 8; j += 2) {
        vst1q_s16(to + 8 * j, vcombine_s16(vmovn_s32(LOW_HALF(x[j])), vmovn_s32(LOW_HALF(x[j + 1]))));
        vst1q_s16(to + 8 * j + 8, vcombine_s16(vmovn_s32(HIGH_HALF(x[j])), vmovn_s32(HIGH_HALF(x[j + 1]))));
    }
}

LANE void lane_store_sixteen(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d, uint8_t *to)
{
    int16x8_t low = vcombine_s16(vmovn_s32(a), vmovn_s32(b)), high = vcombine_s16(vmovn_s32(c), vmovn_s32(d));
    vst1q_u8(to, vreinterpretq_u8_s8(vcombine_s8(vmovn_s16(low), vmovn_s16(high))));
}

/* Bytes in the order: lanes 0-3 of x[0] to x[3], lanes 4-7 of them; the same for the other four. */
LANE void lane_store_bytes(const i8 *x, uint8_t *to)
{
    for (int j = 0; j < 8; j += 4) {
        lane_store_sixteen(LOW_HALF(x[j]), LOW_HALF(x[j + 1]), LOW_HALF(x[j + 2]), LOW_HALF(x[j + 3]), to + 8 * j);
        lane_store_sixteen(HIGH_HALF(x[j]), HIGH_HALF(x[j + 1]), HIGH_HALF(x[j + 2]), HIGH_HALF(x[j + 3]),
                           to + 8 * j + 16);
    }
}

/* 16 values in their own order. */
LANE void lane_store_16_words(i8 a, i8 b, int16_t *to)
{
    vst1q_s16(to, vcombine_s16(vmovn_s32(LOW_HALF(a)), vmovn_s32(HIGH_HALF(a))));
    vst1q_s16(to + 8, vcombine_s16(vmovn_s32(LOW_HALF(b)), vmovn_s32(HIGH_HALF(b))));
}

LANE void lane_store_16_bytes(i8 a, i8 b, uint8_t *to)
{
    lane_store_sixteen(LOW_HALF(a), HIGH_HALF(a), LOW_HALF(b), HIGH_HALF(b), to);
}

#endif
