/* Attention in integers with the 256-bit dot products of AVX-VNNI. */
#include "attention.h"
#include "attention_lanes.h"

typedef struct {
    __m256i low, high;
} sixteen_t;

#define VNNI_ROWS 6

LANE sixteen_t sixteen_zero(void)
{
    return (sixteen_t){_mm256_setzero_si256(), _mm256_setzero_si256()};
}

LANE sixteen_t sixteen_load(const uint8_t *from)
{
    return (sixteen_t){_mm256_loadu_si256((const void *)from), _mm256_loadu_si256((const void *)(from + 32))};
}

LANE void sixteen_store(int32_t *to, sixteen_t x)
{
    _mm256_storeu_si256((void *)to, x.low);
    _mm256_storeu_si256((void *)(to + 8), x.high);
}

LANE sixteen_t sixteen_bytes(sixteen_t sum, const uint8_t *x, sixteen_t columns)
{
    __m256i four = four_bytes(x);
    sum.low = _mm256_dpbusd_avx_epi32(sum.low, four, columns.low);
    sum.high = _mm256_dpbusd_avx_epi32(sum.high, four, columns.high);
    return sum;
}

LANE sixteen_t sixteen_words(sixteen_t sum, const uint8_t *x, sixteen_t columns)
{
    __m256i two = four_bytes(x);
    sum.low = _mm256_dpwssd_avx_epi32(sum.low, two, columns.low);
    sum.high = _mm256_dpwssd_avx_epi32(sum.high, two, columns.high);
    return sum;
}

#include "attention_vnni.h"

#include "attention_integer.h"

const h3k_attention_kernels h3k_attention_avxvnni = {
    .bytes_name = "vpdpbusd", .words_name = "vpdpwssd", .keep = keep, .block = block};
