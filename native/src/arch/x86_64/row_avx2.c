/* The row kernels with AVX2 and FMA. */
#include <immintrin.h>

#include "row_kernels.h"

#define LANES 8
typedef __m256 lanes;

static inline lanes load(const float *from) { return _mm256_loadu_ps(from); }
static inline void store(float *to, lanes v) { _mm256_storeu_ps(to, v); }
static inline lanes splat(float x) { return _mm256_set1_ps(x); }
static inline lanes add(lanes a, lanes b) { return _mm256_add_ps(a, b); }
static inline lanes subtract(lanes a, lanes b) { return _mm256_sub_ps(a, b); }
static inline lanes mul(lanes a, lanes b) { return _mm256_mul_ps(a, b); }
static inline lanes divide(lanes a, lanes b) { return _mm256_div_ps(a, b); }
static inline lanes fused(lanes a, lanes b, lanes c) { return _mm256_fmadd_ps(a, b, c); }
static inline lanes fused_negative(lanes a, lanes b, lanes c) { return _mm256_fnmadd_ps(a, b, c); }

/* The second operand is what both return for NaN. */
static inline lanes maximum(lanes a, lanes x) { return _mm256_max_ps(a, x); }
static inline lanes minimum(lanes a, lanes x) { return _mm256_min_ps(a, x); }

/* n moves from the low bits, where it is signed, to the exponent; the rest of `shifted` is shifted out. */
static inline lanes times_power(lanes p, lanes shifted)
{
    __m256i power = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
}

typedef struct {
    __m256d low, high;
} wide;

static inline wide wide_zero(void) { return (wide){_mm256_setzero_pd(), _mm256_setzero_pd()}; }

static inline wide wide_add(wide a, wide b)
{
    return (wide){_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)};
}

static inline wide wide_add_squares(wide s, lanes v)
{
    __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(v)), high = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
    return (wide){_mm256_fmadd_pd(low, low, s.low), _mm256_fmadd_pd(high, high, s.high)};
}

static inline double wide_total(wide s)
{
    __m256d four = _mm256_add_pd(s.low, s.high);
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

#include "row_lanes.h"

const h3k_row_kernels h3k_row_kernels_avx2 = ROW_KERNELS;
