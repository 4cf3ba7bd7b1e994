/* The emulated processor against formulas: it says it has what the kernels ask for, and the instructions they rest on
 * compute it. An emulator that rounds a fused product twice or saturates a dot product would prove nothing.
 */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int failed;

static void check(int fine, const char *claim)
{
    if (!fine) {
        printf("%s: does not hold\n", claim);
        failed = 1;
    }
}

static void dot_products_are_exact(void)
{
    uint8_t a[64];
    int8_t b[64];
    int32_t sums[16], halves[8];
    for (int i = 0; i < 64; i++) {
        a[i] = (uint8_t)(i < 8 ? 255 : 37 * i + 11);
        b[i] = (int8_t)(i < 4 ? 127 : i < 8 ? -128 : 59 * i + 5);
    }
    __m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b);
    _mm512_storeu_si512(sums, _mm512_dpbusd_epi32(_mm512_set1_epi32(-7), x, y));
    __m256i half = _mm256_dpbusd_epi32(_mm256_set1_epi32(-7), _mm512_castsi512_si256(x), _mm512_castsi512_si256(y));
    _mm256_storeu_si256((__m256i *)(void *)halves, half);
    for (int i = 0; i < 16; i++) {
        int32_t expected = -7;
        for (int j = 4 * i; j < 4 * i + 4; j++)
            expected += a[j] * b[j];
        check(sums[i] == expected && (i >= 8 || halves[i] == expected), "vpdpbusd sums four products exactly");
    }
}

/* VEX encoded, with the operand in a register and at near and far displacements. */
__attribute__((target("avxvnni"))) static void vex_dot_products_are_exact(void)
{
    static uint8_t memory[8192];
    uint8_t *volatile base = memory + 64;
    for (int i = 0; i < 8192; i++)
        memory[i] = (uint8_t)(41 * i + i / 256);
    __m256i x = _mm256_set1_epi32(0x0403fe01), zero = _mm256_setzero_si256(), sums[4];
    uint8_t *p = base;
    sums[0] = _mm256_dpbusd_avx_epi32(zero, x, _mm256_loadu_si256((const __m256i *)(void *)p));
    sums[1] = _mm256_dpbusd_avx_epi32(zero, x, _mm256_loadu_si256((const __m256i *)(void *)(p + 32)));
    sums[2] = _mm256_dpbusd_avx_epi32(zero, x, _mm256_loadu_si256((const __m256i *)(void *)(p + 4000)));
    sums[3] = _mm256_dpbusd_avx_epi32(sums[0], x, sums[1]);
    for (int i = 0; i < 8; i++) {
        static const int offsets[3] = {0, 32, 4000};
        int32_t got[4][8], expected[4];
        memcpy(got, sums, sizeof got);
        for (int s = 0; s < 4; s++) {
            uint8_t near[4];
            memcpy(near, s < 3 ? base + offsets[s] + 4 * i : (const uint8_t *)&got[1][i], 4);
            expected[s] = s < 3 ? 0 : expected[0];
            expected[s] += 1 * (int8_t)near[0] + 254 * (int8_t)near[1] + 3 * (int8_t)near[2] + 4 * (int8_t)near[3];
            check(got[s][i] == expected[s], "the VEX dot product is the EVEX one");
        }
    }
}

static void products_are_fused(void)
{
    volatile float one_and_a_bit = 1.0f + 0x1p-12f;
    __m512 x = _mm512_set1_ps(one_and_a_bit);
    float fused[16];
    _mm512_storeu_ps(fused, _mm512_fmsub_ps(x, x, _mm512_set1_ps(1.0f + 0x1p-11f)));
    check(fused[0] == 0x1p-24f && fused[15] == 0x1p-24f, "vfmsub rounds once");
}

static void masks_leave_the_rest_alone(void)
{
    float values[16];
    for (int i = 0; i < 16; i++)
        values[i] = (float)i;
    _mm512_mask_storeu_ps(values, 0x00f0, _mm512_set1_ps(-1.0f));
    for (int i = 0; i < 16; i++)
        check(values[i] == (i >= 4 && i < 8 ? -1.0f : (float)i), "a masked store writes its lanes only");
}

int main(void)
{
    check(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vnni"), "AVX-512 with VNNI is there");
    dot_products_are_exact();
    vex_dot_products_are_exact();
    products_are_fused();
    masks_leave_the_rest_alone();
    printf("machine: %s\n", failed ? "wrong" : "right");
    return failed;
}
