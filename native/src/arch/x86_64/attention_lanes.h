/* Eight lanes with AVX2 and FMA, for attention_integer.h. */
#ifndef H3K_ATTENTION_LANES_X86_H
#define H3K_ATTENTION_LANES_X86_H

#include <immintrin.h>
#include <stdint.h>

typedef float f8 __attribute__((vector_size(32)));
typedef int32_t i8 __attribute__((vector_size(32)));
typedef uint32_t u8 __attribute__((vector_size(32)));

#define LANE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")

LANE f8 lane_fma(f8 a, f8 b, f8 c)
{
    return (f8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

/* The second where either is NaN. */
LANE f8 lane_max(f8 a, f8 b)
{
    return (f8)_mm256_max_ps((__m256)a, (__m256)b);
}

LANE i8 lane_round(f8 x)
{
    return (i8)_mm256_cvtps_epi32((__m256)x);
}

LANE f8 lane_float(i8 x)
{
    return (f8)_mm256_cvtepi32_ps((__m256i)x);
}

/* Words in the order: lanes 0-3 of x[0], x[1], lanes 4-7 of both; the same for each further pair. */
LANE void lane_store_words(const i8 *x, int16_t *to)
{
    for (int j = 0; j < 8; j += 2)
        _mm256_storeu_si256((void *)(to + 8 * j), _mm256_packs_epi32((__m256i)x[j], (__m256i)x[j + 1]));
}

/* Bytes in the order: lanes 0-3 of x[0] to x[3], lanes 4-7 of them; the same for the other four. */
LANE void lane_store_bytes(const i8 *x, uint8_t *to)
{
    for (int j = 0; j < 8; j += 4) {
        __m256i a = _mm256_packs_epi32((__m256i)x[j], (__m256i)x[j + 1]);
        __m256i b = _mm256_packs_epi32((__m256i)x[j + 2], (__m256i)x[j + 3]);
        _mm256_storeu_si256((void *)(to + 8 * j), _mm256_packus_epi16(a, b));
    }
}

/* 16 values in their own order. */
LANE void lane_store_16_words(i8 a, i8 b, int16_t *to)
{
    __m256i words = _mm256_packs_epi32((__m256i)a, (__m256i)b);
    _mm256_storeu_si256((void *)to, _mm256_permute4x64_epi64(words, 0xd8));
}

LANE void lane_store_16_bytes(i8 a, i8 b, uint8_t *to)
{
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32((__m256i)a, (__m256i)b), 0xd8);
    __m128i high = _mm256_extracti128_si256(words, 1);
    _mm_storeu_si128((void *)to, _mm_packus_epi16(_mm256_castsi256_si128(words), high));
}

LANE __m256i four_bytes(const uint8_t *from)
{
    return _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)from));
}

#endif
