/* Limits of x86-64 cores. Each function has its own target, chosen at run time by `offered`.
 *
 * The trap: an operation on loop constants is moved out of the loop by the compiler, which then times the rest. HELD
 * makes a value unknown again, at no instruction; every operand that must not be constant passes through it.
 */
#include <immintrin.h>

#include "cpu_features.h"

#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx2,fma,avx512f")))
#define HELD(v) __asm__ volatile("" : "+x"(v))
#define HELD512(v) __asm__ volatile("" : "+v"(v))

static double core_clock(int64_t n, char *memory)
{
    (void)memory;
    uint64_t a = 3, b = 5;
    for (int64_t i = 0; i < n; i++)
        __asm__ volatile("imul %1,%0\n\timul %1,%0\n\timul %1,%0\n\timul %1,%0\n\t"
                         "imul %1,%0\n\timul %1,%0\n\timul %1,%0\n\timul %1,%0" : "+r"(a) : "r"(b));
    return 8.0 * 3.0 * (double)n; /* a multiplication waits three cycles for the one before it */
}

#define ZERO_PS(i) __m256 a##i = _mm256_setzero_ps();
#define ZERO_I(i) __m256i a##i = _mm256_setzero_si256();

AVX2 static double fp32_256(int64_t n, char *memory)
{
    (void)memory;
    __m256 x = _mm256_set1_ps(1e-9f), y = _mm256_set1_ps(0.5f);
    EACH12(ZERO_PS)
    for (int64_t i = 0; i < n; i++) {
#define STEP(i) HELD(x); a##i = _mm256_fmadd_ps(x, y, a##i); HELD(a##i);
        EACH12(STEP)
#undef STEP
    }
    return 12.0 * 8 * 2 * (double)n;
}

AVX2 static double int8_256(int64_t n, char *memory)
{
    (void)memory;
    __m256i x = _mm256_set1_epi8(1), y = _mm256_set1_epi8(2), ones = _mm256_set1_epi16(1);
    HELD(y);
    HELD(ones);
    EACH12(ZERO_I)
    for (int64_t i = 0; i < n; i++) {
#define STEP(i) HELD(x); a##i = _mm256_add_epi32(a##i, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones)); HELD(a##i);
        EACH12(STEP)
#undef STEP
    }
    return 12.0 * 32 * 2 * (double)n;
}

/* int8_256 with the product of bytes moved out of the loop. No kernel can reach it: it only tells what a benchmark says
 * that lets its compiler do so. */
AVX2 static double int8_madd_only_256(int64_t n, char *memory)
{
    (void)memory;
    __m256i products = _mm256_set1_epi16(4), ones = _mm256_set1_epi16(1);
    HELD(ones);
    EACH12(ZERO_I)
    for (int64_t i = 0; i < n; i++) {
#define STEP(i) HELD(products); a##i = _mm256_add_epi32(a##i, _mm256_madd_epi16(products, ones)); HELD(a##i);
        EACH12(STEP)
#undef STEP
    }
    return 12.0 * 32 * 2 * (double)n;
}

/* Sums stay in 16 bits: for weights so small that several products fit. */
AVX2 static double int8_short_sums_256(int64_t n, char *memory)
{
    (void)memory;
    __m256i x = _mm256_set1_epi8(1), y = _mm256_set1_epi8(2);
    HELD(y);
    EACH12(ZERO_I)
    for (int64_t i = 0; i < n; i++) {
#define STEP(i) HELD(x); a##i = _mm256_add_epi16(a##i, _mm256_maddubs_epi16(x, y)); HELD(a##i);
        EACH12(STEP)
#undef STEP
    }
    return 12.0 * 32 * 2 * (double)n;
}

/* int8_256 where each eight vectors, which is 32 values along k, end in a conversion and a scaled sum. */
AVX2 static double int8_scaled_256(int64_t n, char *memory)
{
    (void)memory;
    __m256i x = _mm256_set1_epi8(1), y = _mm256_set1_epi8(2), ones = _mm256_set1_epi16(1);
    __m256 scale = _mm256_set1_ps(1e-6f);
    HELD(y);
    HELD(ones);
    HELD(scale);
    ZERO_PS(0) ZERO_PS(1) ZERO_PS(2) ZERO_PS(3) ZERO_PS(4) ZERO_PS(5)
    for (int64_t i = 0; i < n; i++) {
#define TERM HELD(x); t = _mm256_add_epi32(t, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones)); HELD(t);
#define STEP(i) { __m256i t = _mm256_setzero_si256(); TERM TERM TERM TERM TERM TERM TERM TERM \
                  a##i = _mm256_fmadd_ps(_mm256_cvtepi32_ps(t), scale, a##i); HELD(a##i); }
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5)
#undef STEP
#undef TERM
    }
    return 6.0 * 8 * 32 * 2 * (double)n;
}

/* Written as instructions: compilers put moves around the accumulating intrinsics. */
#define DOT_VEX(a, x, y) __asm__ volatile("%{vex%} vpdpbusd %2,%1,%0" : "+x"(a) : "x"(x), "x"(y))
#define DOT_512(a, x, y) __asm__ volatile("vpdpbusd %2,%1,%0" : "+v"(a) : "v"(x), "v"(y))

AVX2 static double int8_vnni_256(int64_t n, char *memory)
{
    (void)memory;
    __m256i x = _mm256_set1_epi8(1), y = _mm256_set1_epi8(2);
    EACH12(ZERO_I)
    for (int64_t i = 0; i < n; i++) {
#define STEP(i) DOT_VEX(a##i, x, y);
        EACH12(STEP)
#undef STEP
    }
    return 12.0 * 32 * 2 * (double)n;
}

AVX2 static double int8_vnni_scaled_256(int64_t n, char *memory)
{
    (void)memory;
    __m256i x = _mm256_set1_epi8(1), y = _mm256_set1_epi8(2);
    __m256 scale = _mm256_set1_ps(1e-6f);
    HELD(scale);
    EACH12(ZERO_PS)
    for (int64_t i = 0; i < n; i++) {
#define TERM DOT_VEX(t, x, y);
#define STEP(i) { __m256i t = _mm256_setzero_si256(); TERM TERM TERM TERM TERM TERM TERM TERM \
                  a##i = _mm256_fmadd_ps(_mm256_cvtepi32_ps(t), scale, a##i); HELD(a##i); }
        EACH12(STEP)
#undef STEP
#undef TERM
    }
    return 12.0 * 8 * 32 * 2 * (double)n;
}

/* clang refuses 512-bit operands of assembly in a file compiled for less. */
#if !defined(__clang__) || defined(__AVX512F__)
#define WITH_512
#define ZERO_PS512(i) __m512 a##i = _mm512_setzero_ps();
#define ZERO_I512(i) __m512i a##i = _mm512_setzero_si512();

AVX512 static double fp32_512(int64_t n, char *memory)
{
    (void)memory;
    __m512 x = _mm512_set1_ps(1e-9f), y = _mm512_set1_ps(0.5f);
    EACH12(ZERO_PS512)
    for (int64_t i = 0; i < n; i++) {
#define STEP(i) HELD512(x); a##i = _mm512_fmadd_ps(x, y, a##i); HELD512(a##i);
        EACH12(STEP)
#undef STEP
    }
    return 12.0 * 16 * 2 * (double)n;
}

AVX512 static double int8_vnni_512(int64_t n, char *memory)
{
    (void)memory;
    __m512i x = _mm512_set1_epi32(0x01010101), y = _mm512_set1_epi32(0x02020202);
    EACH12(ZERO_I512)
    for (int64_t i = 0; i < n; i++) {
#define STEP(i) DOT_512(a##i, x, y);
        EACH12(STEP)
#undef STEP
    }
    return 12.0 * 64 * 2 * (double)n;
}

AVX512 static double int8_vnni_scaled_512(int64_t n, char *memory)
{
    (void)memory;
    __m512i x = _mm512_set1_epi32(0x01010101), y = _mm512_set1_epi32(0x02020202);
    __m512 scale = _mm512_set1_ps(1e-6f);
    HELD512(scale);
    EACH12(ZERO_PS512)
    for (int64_t i = 0; i < n; i++) {
#define TERM DOT_512(t, x, y);
#define STEP(i) { __m512i t = _mm512_setzero_si512(); TERM TERM TERM TERM TERM TERM TERM TERM \
                  a##i = _mm512_fmadd_ps(_mm512_cvtepi32_ps(t), scale, a##i); HELD512(a##i); }
        EACH12(STEP)
#undef STEP
#undef TERM
    }
    return 12.0 * 8 * 64 * 2 * (double)n;
}

#endif

AVX2 static double read_memory(int64_t n, const char *memory, size_t bytes)
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (int64_t r = 0; r < n; r++)
        for (size_t i = 0; i < bytes; i += 128) {
            a = _mm256_xor_si256(a, _mm256_load_si256((const __m256i *)(const void *)(memory + i)));
            b = _mm256_xor_si256(b, _mm256_load_si256((const __m256i *)(const void *)(memory + i + 32)));
            c = _mm256_xor_si256(c, _mm256_load_si256((const __m256i *)(const void *)(memory + i + 64)));
            d = _mm256_xor_si256(d, _mm256_load_si256((const __m256i *)(const void *)(memory + i + 96)));
            HELD(a);
        }
    HELD(b);
    HELD(c);
    HELD(d);
    return (double)n * (double)bytes;
}

AVX2 static double copy_past_caches(int64_t n, char *memory)
{
    char *to = memory + MEMORY_BYTES / 2;
    for (int64_t r = 0; r < n; r++) {
        for (size_t i = 0; i < MEMORY_BYTES / 2; i += 64) {
            __m256i a = _mm256_load_si256((const __m256i *)(const void *)(memory + i));
            __m256i b = _mm256_load_si256((const __m256i *)(const void *)(memory + i + 32));
            _mm256_stream_si256((__m256i *)(void *)(to + i), a);
            _mm256_stream_si256((__m256i *)(void *)(to + i + 32), b);
        }
        _mm_sfence();
    }
    return (double)n * (double)MEMORY_BYTES;
}

static double read_32k(int64_t n, char *memory) { return read_memory(n, memory, (size_t)32 << 10); }
static double read_256k(int64_t n, char *memory) { return read_memory(n, memory, (size_t)256 << 10); }
static double read_1m(int64_t n, char *memory) { return read_memory(n, memory, (size_t)1 << 20); }
static double read_24m(int64_t n, char *memory) { return read_memory(n, memory, (size_t)24 << 20); }
static double read_all(int64_t n, char *memory) { return read_memory(n, memory, MEMORY_BYTES); }

static const limit limits_here[] = {
    {"clock", "core clock", "GHz", h3k_always, core_clock, false},
    {"fp32_256", "fp32 FMA 256", "GFLOP/s", h3k_has_avx2, fp32_256, false},
#ifdef WITH_512
    {"fp32_512", "fp32 FMA 512", "GFLOP/s", h3k_has_avx512vnni, fp32_512, false},
#endif
    {"int8_256", "int8 maddubs+madd+add 256", "GOP/s", h3k_has_avx2, int8_256, false},
    {"int8_scaled_256", "  scaled every 32", "GOP/s", h3k_has_avx2, int8_scaled_256, false},
    {"int8_madd_only_256", "int8 madd+add only 256", "GOP/s", h3k_has_avx2, int8_madd_only_256, false},
    {"int8_short_sums_256", "int8 maddubs+add16 256", "GOP/s", h3k_has_avx2, int8_short_sums_256, false},
    {"int8_vnni_256", "int8 vpdpbusd 256", "GOP/s", h3k_has_avxvnni, int8_vnni_256, false},
    {"int8_vnni_scaled_256", "  scaled every 32", "GOP/s", h3k_has_avxvnni, int8_vnni_scaled_256, false},
#ifdef WITH_512
    {"int8_vnni_512", "int8 vpdpbusd 512", "GOP/s", h3k_has_avx512vnni, int8_vnni_512, false},
    {"int8_vnni_scaled_512", "  scaled every 32", "GOP/s", h3k_has_avx512vnni, int8_vnni_scaled_512, false},
#endif
    {"read_32k", "read 32 KiB", "GB/s", h3k_has_avx2, read_32k, true},
    {"read_256k", "read 256 KiB", "GB/s", h3k_has_avx2, read_256k, true},
    {"read_1m", "read 1 MiB", "GB/s", h3k_has_avx2, read_1m, true},
    {"read_24m", "read 24 MiB", "GB/s", h3k_has_avx2, read_24m, true},
    {"read_768m", "read 768 MiB", "GB/s", h3k_has_avx2, read_all, true},
    {"copy", "memcpy (read + write)", "GB/s", h3k_always, copy_memory, true},
    {"copy_past_caches", "copy, non-temporal stores", "GB/s", h3k_has_avx2, copy_past_caches, true},
};
