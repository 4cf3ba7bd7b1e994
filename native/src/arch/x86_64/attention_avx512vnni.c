/* Attention in integers with the 512-bit dot products of AVX-512 VNNI; the softmax stays at eight lanes. */
#include <string.h>

#include "attention.h"
#include "attention_lanes.h"

typedef __m512i sixteen_t;

#define VNNI_ROWS 12

LANE sixteen_t sixteen_zero(void)
{
    return _mm512_setzero_si512();
}

LANE sixteen_t sixteen_load(const uint8_t *from)
{
    return _mm512_loadu_si512((const void *)from);
}

LANE void sixteen_store(int32_t *to, sixteen_t x)
{
    _mm512_storeu_si512((void *)to, x);
}

LANE __m512i four_bytes_512(const uint8_t *from)
{
    int32_t four;
    memcpy(&four, from, sizeof four);
    return _mm512_set1_epi32(four);
}

LANE sixteen_t sixteen_bytes(sixteen_t sum, const uint8_t *x, sixteen_t columns)
{
    return _mm512_dpbusd_epi32(sum, four_bytes_512(x), columns);
}

LANE sixteen_t sixteen_words(sixteen_t sum, const uint8_t *x, sixteen_t columns)
{
    return _mm512_dpwssd_epi32(sum, four_bytes_512(x), columns);
}

#include "attention_vnni.h"

#include "attention_integer.h"

const h3k_attention_kernels h3k_attention_avx512vnni = {
    .bytes_name = "vpdpbusd", .words_name = "vpdpwssd", .keep = keep, .block = block};
