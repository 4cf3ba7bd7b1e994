/* Attention of the VNNI instruction sets with portable products in place of vpdpbusd and vpdpwssd: the same sums.
 *
 * Tier: independent transcription of the equation. Cannot catch an error in the intrinsics of attention_avxvnni.c and
 * attention_avx512vnni.c; test_attention.c runs those on processors that have them.
 */
#pragma GCC diagnostic ignored "-Wpsabi" /* eight floats are passed between inlined functions only */
#include "h3k.h"

#define h3k_attention emulated_attention
#define h3k_attention_path emulated_attention_path
#define h3k_attention_scratch_bytes emulated_attention_scratch_bytes
#define h3k_kernels_chosen emulated_kernels_chosen

#include "attention.c"

typedef float f8 __attribute__((vector_size(32)));
typedef int32_t i8 __attribute__((vector_size(32)));
typedef uint32_t u8 __attribute__((vector_size(32)));

typedef union {
    int32_t column[16];
    int16_t word[32];
    int8_t byte[64];
} sixteen_t;

#define LANE static inline __attribute__((always_inline))

LANE f8 lane_fma(f8 a, f8 b, f8 c)
{
    return a * b + c;
}

LANE f8 lane_max(f8 a, f8 b)
{
    for (int i = 0; i < 8; i++)
        b[i] = a[i] > b[i] ? a[i] : b[i];
    return b;
}

LANE i8 lane_round(f8 x)
{
    i8 rounded;
    for (int i = 0; i < 8; i++)
        rounded[i] = x[i] > -2e9f && x[i] < 2e9f ? (int32_t)__builtin_rintf(x[i]) : INT32_MIN;
    return rounded;
}

LANE f8 lane_float(i8 x)
{
    return __builtin_convertvector(x, f8);
}

/* Place p of a run of 8 vectors' lanes: see attention_lanes.h of the instruction sets. */
LANE void lane_store_words(const i8 *x, int16_t *to)
{
    for (int p = 0; p < 64; p++)
        to[p] = (int16_t)x[p / 16 * 2 + p % 8 / 4][p % 16 / 8 * 4 + p % 4];
}

LANE void lane_store_bytes(const i8 *x, uint8_t *to)
{
    for (int p = 0; p < 64; p++)
        to[p] = (uint8_t)x[p / 32 * 4 + p % 16 / 4][p % 32 / 16 * 4 + p % 4];
}

LANE void lane_store_16_words(i8 a, i8 b, int16_t *to)
{
    for (int p = 0; p < 16; p++)
        to[p] = (int16_t)(p < 8 ? a[p] : b[p - 8]);
}

LANE void lane_store_16_bytes(i8 a, i8 b, uint8_t *to)
{
    for (int p = 0; p < 16; p++)
        to[p] = (uint8_t)(p < 8 ? a[p] : b[p - 8]);
}

#define VNNI_ROWS 6

LANE sixteen_t sixteen_zero(void)
{
    return (sixteen_t){{0}};
}

LANE sixteen_t sixteen_load(const uint8_t *from)
{
    sixteen_t x;
    memcpy(&x, from, sizeof x);
    return x;
}

LANE void sixteen_store(int32_t *to, sixteen_t x)
{
    memcpy(to, &x, sizeof x);
}

LANE sixteen_t sixteen_bytes(sixteen_t sum, const uint8_t *x, sixteen_t columns)
{
    for (int j = 0; j < 16; j++)
        for (int i = 0; i < 4; i++)
            sum.column[j] += x[i] * columns.byte[4 * j + i];
    return sum;
}

LANE sixteen_t sixteen_words(sixteen_t sum, const uint8_t *x, sixteen_t columns)
{
    int16_t two[2];
    memcpy(two, x, sizeof two);
    for (int j = 0; j < 16; j++)
        sum.column[j] += two[0] * columns.word[2 * j] + two[1] * columns.word[2 * j + 1];
    return sum;
}

#include "attention_vnni.h"

#include "attention_integer.h"

static const h3k_attention_kernels emulated = {
    .bytes_name = "vpdpbusd", .words_name = "vpdpwssd", .keep = keep, .block = block};

const h3k_kernels *emulated_kernels_chosen(void)
{
    static const h3k_kernels kernels = {
        .name = "emulated", .panel_product = h3k_panel_product_generic, .attention = &emulated};
    return &kernels;
}

#include "attention_claims.h"

int main(void)
{
    CHECK(strcmp(h3k_attention_path(H3K_MODE_NEAR, 0), "vpdpwssd") == 0, "the emulation has words");
    CHECK(strcmp(h3k_attention_path(H3K_MODE_EXACT, 0), "vpdpbusd") == 0, "the emulation has bytes");
    for (int32_t mode = H3K_MODE_NEAR; mode <= H3K_MODE_FAST; mode++)
        mode_is_right(mode);
    return finish("attention of VNNI");
}
