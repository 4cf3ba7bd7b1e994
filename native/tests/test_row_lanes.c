/* The source of the row kernels over portable primitives gives the bits of every variant this processor runs.
 *
 * Tier: self-consistency; test_norm.c and test_activation.c compare with float64. What LANES is does not matter, so the
 * variants that this processor lacks give these bits too if their primitives are right, which only such a processor shows.
 */
#include "check.h"
#include "cpu_features.h"
#include "row_kernels.h"

#define LANES 16
typedef struct {
    float at[LANES];
} lanes;
typedef struct {
    double at[LANES];
} wide;

#define FOR_ALL for (int i = 0; i < LANES; i++)
#define LANEWISE(type, name, parameters, expression)                                                                   \
    static inline type name parameters                                                                                 \
    {                                                                                                                  \
        type result;                                                                                                   \
        FOR_ALL result.at[i] = expression;                                                                             \
        return result;                                                                                                 \
    }

static inline float power_of_two_times(float p, float shifted)
{
    int32_t n;
    memcpy(&n, &shifted, sizeof n);
    return ldexpf(p, n - 0x4b400000);
}

LANEWISE(lanes, load, (const float *from), from[i])
LANEWISE(lanes, splat, (float x), x)
LANEWISE(lanes, add, (lanes a, lanes b), a.at[i] + b.at[i])
LANEWISE(lanes, subtract, (lanes a, lanes b), a.at[i] - b.at[i])
LANEWISE(lanes, mul, (lanes a, lanes b), a.at[i] * b.at[i])
LANEWISE(lanes, divide, (lanes a, lanes b), a.at[i] / b.at[i])
LANEWISE(lanes, fused, (lanes a, lanes b, lanes c), fmaf(a.at[i], b.at[i], c.at[i]))
LANEWISE(lanes, fused_negative, (lanes a, lanes b, lanes c), fmaf(-a.at[i], b.at[i], c.at[i]))
LANEWISE(lanes, maximum, (lanes a, lanes x), a.at[i] > x.at[i] ? a.at[i] : x.at[i])
LANEWISE(lanes, minimum, (lanes a, lanes x), a.at[i] < x.at[i] ? a.at[i] : x.at[i])
LANEWISE(lanes, times_power, (lanes p, lanes shifted), power_of_two_times(p.at[i], shifted.at[i]))
LANEWISE(wide, wide_zero, (void), 0.0)
LANEWISE(wide, wide_add, (wide a, wide b), a.at[i] + b.at[i])
LANEWISE(wide, wide_add_squares, (wide s, lanes v), s.at[i] + (double)v.at[i] * (double)v.at[i])

static inline void store(float *to, lanes v)
{
    memcpy(to, v.at, sizeof v.at);
}

static inline double wide_total(wide s)
{
    for (int apart = LANES / 2; apart > 0; apart /= 2)
        for (int i = 0; i < apart; i++)
            s.at[i] += s.at[i + apart];
    return s.at[0];
}

#include "row_lanes.h"

static const h3k_row_kernels portable = ROW_KERNELS;

enum { HEADS = 11 }; /* a group of eight and some */

typedef struct {
    int64_t columns;
    int shift; /* floats off the alignment of malloc */
} shape;

/* Every kernel once; results one behind the other: five rows of `columns`, then the heads. */
static void run_all(const h3k_row_kernels *k, const float *in, shape s, float *out)
{
    int64_t n = s.columns, half = n / 3;
    const float *x = in + s.shift, *gate = x + n, *weight = x + 2 * n, *scale = x + 3 * n, *shift = x + 4 * n;
    const h3k_norm_row modulated = {.x = x, .weight = weight, .scale = scale, .shift = shift, .y = out, .columns = n,
                                    .eps = 1e-5};
    k->norm(&modulated);
    memcpy(out + n, x, (size_t)n * sizeof *out);
    k->residual(out + n, scale, gate, n);
    k->residual_by_number(out + n, shift, -0.75f, n);
    float *h = out + 2 * n, *normed = out + 3 * n;
    memcpy(h, x, (size_t)n * sizeof *h);
    memcpy(normed, scale, (size_t)n * sizeof *normed);
    const h3k_norm_row next = {.x = h, .scale = gate, .shift = weight, .y = normed, .columns = n, .eps = 1e-5};
    k->residual_norm(h, normed, gate, &next);
    k->swiglu(x, gate, out + 4 * n, n);
    float *heads = out + 5 * n;
    for (int i = 0; i < HEADS; i++)
        memcpy(heads + i * n, x + i, (size_t)n * sizeof *heads);
    k->norm_rope(&(h3k_head_run){.heads = heads, .weight = n % 2 ? weight : NULL, .cos = scale, .sin = gate,
                                 .count = HEADS, .head_dim = n, .half = half, .eps = 1e-6});
}

static void variant_gives_the_portable_bits(const char *name, const h3k_row_kernels *kernels)
{
    static const int64_t widths[] = {1, 2, 7, 8, 15, 16, 17, 31, 128, 193, 1023, 5376};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int shift = 0; shift < 3; shift++) {
            shape s = {.columns = widths[i], .shift = shift};
            int64_t count = (5 + HEADS) * s.columns;
            float *in = random_floats(6 * s.columns + HEADS + shift);
            float *expected = blank_floats(count), *got = blank_floats(count);
            for (int64_t at = 0; at < 6 * s.columns; at += 3)
                in[at] *= 40.0f;
            run_all(&portable, in, s, expected);
            run_all(kernels, in, s, got);
            CHECK(same_bits(got, expected, count), "%s, %lld columns, %d off", name, (long long)s.columns, shift);
            free(in), free(expected), free(got);
        }
}

int main(void)
{
#if defined(__x86_64__)
    if (h3k_has_avx2())
        variant_gives_the_portable_bits("avx2", &h3k_row_kernels_avx2);
    if (h3k_has_avx512vnni())
        variant_gives_the_portable_bits("avx512vnni", &h3k_row_kernels_avx512vnni);
    printf("avx2: %d, avx512vnni: %d\n", h3k_has_avx2(), h3k_has_avx512vnni());
#elif defined(__aarch64__)
    variant_gives_the_portable_bits("neon", &h3k_row_kernels_neon);
#endif
    return finish("row_lanes");
}
