/* The row kernels with NEON, which every arm64 processor has. */
#include <arm_neon.h>

#include "row_kernels.h"

#define LANES 4
typedef float32x4_t lanes;

static inline lanes load(const float *from) { return vld1q_f32(from); }
static inline void store(float *to, lanes v) { vst1q_f32(to, v); }
static inline lanes splat(float x) { return vdupq_n_f32(x); }
static inline lanes add(lanes a, lanes b) { return vaddq_f32(a, b); }
static inline lanes subtract(lanes a, lanes b) { return vsubq_f32(a, b); }
static inline lanes mul(lanes a, lanes b) { return vmulq_f32(a, b); }
static inline lanes divide(lanes a, lanes b) { return vdivq_f32(a, b); }
static inline lanes fused(lanes a, lanes b, lanes c) { return vfmaq_f32(c, a, b); }
static inline lanes fused_negative(lanes a, lanes b, lanes c) { return vfmsq_f32(c, a, b); }
static inline lanes maximum(lanes a, lanes x) { return vmaxq_f32(a, x); }
static inline lanes minimum(lanes a, lanes x) { return vminq_f32(a, x); }

/* n moves from the low bits, where it is signed, to the exponent; the rest of `shifted` is shifted out. */
static inline lanes times_power(lanes p, lanes shifted)
{
    int32x4_t power = vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), power));
}

typedef struct {
    float64x2_t low, high;
} wide;

static inline wide wide_zero(void) { return (wide){vdupq_n_f64(0), vdupq_n_f64(0)}; }

static inline wide wide_add(wide a, wide b)
{
    return (wide){vaddq_f64(a.low, b.low), vaddq_f64(a.high, b.high)};
}

static inline wide wide_add_squares(wide s, lanes v)
{
    float64x2_t low = vcvt_f64_f32(vget_low_f32(v)), high = vcvt_high_f64_f32(v);
    return (wide){vfmaq_f64(s.low, low, low), vfmaq_f64(s.high, high, high)};
}

static inline double wide_total(wide s)
{
    float64x2_t two = vaddq_f64(s.low, s.high);
    return vgetq_lane_f64(two, 0) + vgetq_lane_f64(two, 1);
}

#include "row_lanes.h"

const h3k_row_kernels h3k_row_kernels_neon = ROW_KERNELS;
