/* The row kernels with AVX-512. */
#include <immintrin.h>

#include "row_kernels.h"

#define LANES 16
typedef __m512 lanes;

static inline lanes load(const float *from) { return _mm512_loadu_ps(from); }
static inline void store(float *to, lanes v) { _mm512_storeu_ps(to, v); }
static inline lanes splat(float x) { return _mm512_set1_ps(x); }
static inline lanes add(lanes a, lanes b) { return _mm512_add_ps(a, b); }
static inline lanes subtract(lanes a, lanes b) { return _mm512_sub_ps(a, b); }
static inline lanes mul(lanes a, lanes b) { return _mm512_mul_ps(a, b); }
static inline lanes divide(lanes a, lanes b) { return _mm512_div_ps(a, b); }
static inline lanes fused(lanes a, lanes b, lanes c) { return _mm512_fmadd_ps(a, b, c); }
static inline lanes fused_negative(lanes a, lanes b, lanes c) { return _mm512_fnmadd_ps(a, b, c); }

/* The second operand is what both return for NaN. */
static inline lanes maximum(lanes a, lanes x) { return _mm512_max_ps(a, x); }
static inline lanes minimum(lanes a, lanes x) { return _mm512_min_ps(a, x); }

/* n moves from the low bits, where it is signed, to the exponent; the rest of `shifted` is shifted out. */
static inline lanes times_power(lanes p, lanes shifted)
{
    __m512i power = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), power));
}

typedef struct {
    __m512d low, high;
} wide;

static inline wide wide_zero(void) { return (wide){_mm512_setzero_pd(), _mm512_setzero_pd()}; }

static inline wide wide_add(wide a, wide b)
{
    return (wide){_mm512_add_pd(a.low, b.low), _mm512_add_pd(a.high, b.high)};
}

static inline wide wide_add_squares(wide s, lanes v)
{
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(v)), high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
    return (wide){_mm512_fmadd_pd(low, low, s.low), _mm512_fmadd_pd(high, high, s.high)};
}

static inline double wide_total(wide s)
{
    __m512d eight = _mm512_add_pd(s.low, s.high);
    __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

#include "row_lanes.h"

const h3k_row_kernels h3k_row_kernels_avx512vnni = ROW_KERNELS;
