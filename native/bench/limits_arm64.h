/* Limits of arm64 cores. Each function has its own target, chosen at run time by `offered`.
 *
 * The trap: an operation on loop constants is moved out of the loop by the compiler, which then times the rest. The
 * products are therefore written as volatile instructions.
 */
#include <arm_neon.h>

#include "cpu_features.h"

#define DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#define I8MM __attribute__((target("arch=armv8.2-a+dotprod+i8mm")))
#define HELD(v) __asm__ volatile("" : "+w"(v))

static double core_clock(int64_t n, char *memory)
{
    (void)memory;
    uint64_t a = 3, b = 5;
    for (int64_t i = 0; i < n; i++)
        __asm__ volatile("add %0,%0,%1\n\tadd %0,%0,%1\n\tadd %0,%0,%1\n\tadd %0,%0,%1\n\t"
                         "add %0,%0,%1\n\tadd %0,%0,%1\n\tadd %0,%0,%1\n\tadd %0,%0,%1" : "+r"(a) : "r"(b));
    return 8.0 * (double)n; /* an addition waits one cycle for the one before it */
}

/* Twenty-four sums: four instructions a cycle with a latency of four, and registers left over. */
#define EACH24(X) EACH12(X) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#define ZERO_F(i) float32x4_t a##i = vdupq_n_f32(0);
#define ZERO_S(i) int32x4_t a##i = vdupq_n_s32(0);

static double fp32_128(int64_t n, char *memory)
{
    (void)memory;
    float32x4_t x = vdupq_n_f32(1e-9f), y = vdupq_n_f32(0.5f);
    EACH24(ZERO_F)
    for (int64_t i = 0; i < n; i++) {
#define STEP(i) __asm__ volatile("fmla %0.4s,%1.4s,%2.4s" : "+w"(a##i) : "w"(x), "w"(y));
        EACH24(STEP)
#undef STEP
    }
    return 24.0 * 4 * 2 * (double)n;
}

/* Sixteen products in two steps of 16 bits, then summed in pairs. */
static double int8_smlal(int64_t n, char *memory)
{
    (void)memory;
    int8x16_t x = vdupq_n_s8(1), y = vdupq_n_s8(2);
    EACH12(ZERO_S)
    for (int64_t i = 0; i < n; i++) {
#define STEP(i) { int16x8_t t; __asm__ volatile("smull %0.8h,%2.8b,%3.8b\n\tsmlal2 %0.8h,%2.16b,%3.16b\n\t" \
                  "sadalp %1.4s,%0.8h" : "=&w"(t), "+w"(a##i) : "w"(x), "w"(y)); }
        EACH12(STEP)
#undef STEP
    }
    return 12.0 * 16 * 2 * (double)n;
}

#define DOT(a, x, y) __asm__ volatile("sdot %0.4s,%1.16b,%2.16b" : "+w"(a) : "w"(x), "w"(y))
#define MATRIX(a, x, y) __asm__ volatile("smmla %0.4s,%1.16b,%2.16b" : "+w"(a) : "w"(x), "w"(y))

DOTPROD static double int8_sdot(int64_t n, char *memory)
{
    (void)memory;
    int8x16_t x = vdupq_n_s8(1), y = vdupq_n_s8(2);
    EACH24(ZERO_S)
    for (int64_t i = 0; i < n; i++) {
#define STEP(i) DOT(a##i, x, y);
        EACH24(STEP)
#undef STEP
    }
    return 24.0 * 16 * 2 * (double)n;
}

I8MM static double int8_smmla(int64_t n, char *memory)
{
    (void)memory;
    int8x16_t x = vdupq_n_s8(1), y = vdupq_n_s8(2);
    EACH24(ZERO_S)
    for (int64_t i = 0; i < n; i++) {
#define STEP(i) MATRIX(a##i, x, y);
        EACH24(STEP)
#undef STEP
    }
    return 24.0 * 32 * 2 * (double)n;
}

/* 32 values along k end in a conversion and a scaled sum: eight steps of four values, or four of eight. */
#define SCALED(STEPS) \
    float32x4_t scale = vdupq_n_f32(1e-6f); \
    HELD(scale); \
    EACH12(ZERO_F) \
    for (int64_t i = 0; i < n; i++) { \
        EACH12(STEPS) \
    }
#define END(i) a##i = vfmaq_f32(a##i, vcvtq_f32_s32(t), scale); HELD(a##i);

DOTPROD static double int8_sdot_scaled(int64_t n, char *memory)
{
    (void)memory;
    int8x16_t x = vdupq_n_s8(1), y = vdupq_n_s8(2);
#define TERM DOT(t, x, y);
#define STEP(i) { int32x4_t t = vdupq_n_s32(0); TERM TERM TERM TERM TERM TERM TERM TERM END(i) }
    SCALED(STEP)
#undef STEP
#undef TERM
    return 12.0 * 8 * 16 * 2 * (double)n;
}

I8MM static double int8_smmla_scaled(int64_t n, char *memory)
{
    (void)memory;
    int8x16_t x = vdupq_n_s8(1), y = vdupq_n_s8(2);
#define TERM MATRIX(t, x, y);
#define STEP(i) { int32x4_t t = vdupq_n_s32(0); TERM TERM TERM TERM END(i) }
    SCALED(STEP)
#undef STEP
#undef TERM
    return 12.0 * 4 * 32 * 2 * (double)n;
}

static double read_memory(int64_t n, const char *memory, size_t bytes)
{
    uint8x16_t a = vdupq_n_u8(0), b = a, c = a, d = a;
    for (int64_t r = 0; r < n; r++)
        for (size_t i = 0; i < bytes; i += 64) {
            const uint8_t *p = (const uint8_t *)memory + i;
            a = veorq_u8(a, vld1q_u8(p)), b = veorq_u8(b, vld1q_u8(p + 16));
            c = veorq_u8(c, vld1q_u8(p + 32)), d = veorq_u8(d, vld1q_u8(p + 48));
            HELD(a);
        }
    HELD(b);
    HELD(c);
    HELD(d);
    return (double)n * (double)bytes;
}

static double read_64k(int64_t n, char *memory) { return read_memory(n, memory, (size_t)64 << 10); }
static double read_1m(int64_t n, char *memory) { return read_memory(n, memory, (size_t)1 << 20); }
static double read_8m(int64_t n, char *memory) { return read_memory(n, memory, (size_t)8 << 20); }
static double read_all(int64_t n, char *memory) { return read_memory(n, memory, MEMORY_BYTES); }

static const limit limits_here[] = {
    {"clock", "core clock", "GHz", h3k_always, core_clock, false},
    {"fp32_128", "fp32 fmla 128", "GFLOP/s", h3k_always, fp32_128, false},
    {"int8_smlal", "int8 smull+smlal2+sadalp", "GOP/s", h3k_always, int8_smlal, false},
    {"int8_sdot", "int8 sdot", "GOP/s", h3k_has_dotprod, int8_sdot, false},
    {"int8_sdot_scaled", "  scaled every 32", "GOP/s", h3k_has_dotprod, int8_sdot_scaled, false},
    {"int8_smmla", "int8 smmla", "GOP/s", h3k_has_i8mm, int8_smmla, false},
    {"int8_smmla_scaled", "  scaled every 32", "GOP/s", h3k_has_i8mm, int8_smmla_scaled, false},
    {"read_64k", "read 64 KiB", "GB/s", h3k_always, read_64k, true},
    {"read_1m", "read 1 MiB", "GB/s", h3k_always, read_1m, true},
    {"read_8m", "read 8 MiB", "GB/s", h3k_always, read_8m, true},
    {"read_768m", "read 768 MiB", "GB/s", h3k_always, read_all, true},
    {"copy", "memcpy (read + write)", "GB/s", h3k_always, copy_memory, true},
};
