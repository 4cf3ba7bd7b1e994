/* Integer products with AVX2, which multiplies bytes only into saturating 16-bit sums.
 *
 * Codes below 64 leave room there, so several steps share one widening to 32 bits: unsigned codes below 16 eight steps of
 * four elements, below 32 four, below 64 two. Eight-bit codes and 16-bit activations are multiplied as 16-bit pairs into
 * 32 bits ("wide"): as fast as bytes would be in two halves, and sixteen bits of x cost nothing more.
 *
 * The accumulating instructions are written as assembly: gcc 12 otherwise computes all products first and spills them,
 * 140 against 235 GOP/s.
 */
#include <immintrin.h>

#include "dispatch.h"
#include "integer_panel.h"

#define COLUMNS 16
#define ROWS 6 /* of the largest tile */
#define UNROLLED _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

typedef enum { BELOW_16, BELOW_32, BELOW_64, WIDE } layout;

typedef struct {
    int32_t layout, groups, has_bias, unused[5];
    float scale[H3K_MAX_GROUPS][COLUMNS], bias[H3K_MAX_GROUPS][COLUMNS];
    union {
        uint8_t quads[H3K_CHUNK / 4][COLUMNS][4];
        int16_t pairs[H3K_CHUNK / 2][COLUMNS][2];
    };
} panel;
_Static_assert(sizeof(panel) <= H3K_PANEL_BYTES, "panel");

static int32_t packing(const h3k_format *format, int32_t mode)
{
    if (format->code_bits == 0)
        return mode == H3K_MODE_FAST ? H3K_PACKING_I16 : H3K_PACKING_NONE;
    return mode == H3K_MODE_NEAR || format->code_bits == 8 ? H3K_PACKING_I16 : H3K_PACKING_I8;
}

/* ---- weights to panels */
INLINE void store_pairs(__m128i quads, int16_t *restrict first, int16_t *restrict second)
{
    const __m128i halves = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    __m256i words = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(quads, halves));
    _mm_storeu_si128((__m128i *)(void *)first, _mm256_castsi256_si128(words));
    _mm_storeu_si128((__m128i *)(void *)second, _mm256_extracti128_si256(words, 1));
}

static void widen(uint8_t (*restrict quads)[COLUMNS][4], int16_t (*restrict pairs)[COLUMNS][2])
{
    for (int k = 0; k < H3K_CHUNK / 4; k++)
        for (int j = 0; j < COLUMNS; j += 4)
            store_pairs(_mm_loadu_si128((const __m128i *)(const void *)quads[k][j]), pairs[2 * k][j], pairs[2 * k + 1][j]);
}

/* Codes less the zero: signed ones need no bias. */
static void centre(h3k_codes *restrict rows, int zero)
{
    for (int j = 0; j < COLUMNS; j++)
        for (int k = 0; k < H3K_CHUNK; k++)
            rows[j].q[k] = (int8_t)(rows[j].q[k] - zero);
}

/* Each scale twice: for the halves of its group. */
static void repeat_scales(h3k_codes *restrict rows)
{
    for (int j = 0; j < COLUMNS; j++)
        for (int g = H3K_MAX_GROUPS - 1; g > 0; g--) {
            rows[j].scale[g] = rows[j].scale[g / 2];
            rows[j].bias[g] = rows[j].bias[g / 2];
        }
}

static void fill(const h3k_panel_source *source, int32_t kind, void *restrict memory)
{
    panel *p = memory;
    const h3k_format *format = source->weight->format;
    h3k_codes rows[COLUMNS];
    bool requantised = format->code_bits == 0;
    int group = requantised ? H3K_CHUNK : format->group, split = 1;
    if (kind == H3K_PACKING_I16)
        p->layout = WIDE;
    else if (format->code_bits == 6)
        p->layout = BELOW_64;
    else
        p->layout = format->code_bits == 4 && group == 32 ? BELOW_16 : BELOW_32;
    if (p->layout == BELOW_32 && group == 32)
        split = 2; /* four steps are half a group: the halves get its scale each */
    p->groups = H3K_CHUNK / group * split;
    p->has_bias = format->code_bits != 8 && !requantised && (kind != H3K_PACKING_I16 || format->zero == 0);
    h3k_decode_columns(source, requantised, COLUMNS, rows);
    if (split == 2)
        repeat_scales(rows);
    h3k_interleave(rows->scale, sizeof rows->scale, COLUMNS, p->scale);
    if (p->has_bias)
        h3k_interleave(rows->bias, sizeof rows->bias, COLUMNS, p->bias);
    if (p->layout == WIDE) {
        if (format->zero != 0)
            centre(rows, format->zero);
        uint8_t quads[H3K_CHUNK / 4][COLUMNS][4];
        h3k_interleave(rows->q, H3K_CHUNK, COLUMNS, quads);
        widen(quads, p->pairs);
    } else
        h3k_interleave(rows->q, H3K_CHUNK, COLUMNS, p->quads);
}

/* ---- panels times rows */
INLINE __m256i load(const void *from)
{
    return _mm256_load_si256(from);
}

INLINE __m256i broadcast(const void *from)
{
    int32_t four;
    memcpy(&four, from, sizeof four);
    return _mm256_set1_epi32(four);
}

/* sum += w * x in 16 bits: bytes, w unsigned */
INLINE void add_bytes(__m256i *sum, __m256i w, __m256i x)
{
    __m256i product;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(*sum), "=&x"(product) : "x"(w), "x"(x));
}

/* sum += w0 * x0 + w1 * x1 in 32 bits, the pair first in 16 */
INLINE void add_two_steps(__m256i *sum, __m256i w0, __m256i x0, __m256i w1, __m256i x1)
{
    static const int16_t ones[16] __attribute__((aligned(32))) = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    __m256i a, b;
    __asm__("vpmaddubsw %4, %3, %1\n\tvpmaddubsw %6, %5, %2\n\tvpaddw %2, %1, %1\n\tvpmaddwd %7, %1, %1\n\tvpaddd %1, %0, %0"
            : "+x"(*sum), "=&x"(a), "=&x"(b)
            : "x"(w0), "x"(x0), "x"(w1), "x"(x1), "m"(*(const __m256i *)(const void *)ones));
}

/* sum += w * x in 32 bits: 16-bit pairs */
INLINE void add_words(__m256i *sum, __m256i w, __m256i x)
{
    __m256i product;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(*sum), "=&x"(product) : "x"(w), "x"(x));
}

/* The float sums of a tile; rows and chunk layout are constants after inlining. */
typedef struct {
    __m256 sum[ROWS][2];
} tile;

INLINE void scale_group(const int rows, tile *t, __m256i dots[ROWS][2], const panel *p, int g, bool has_bias,
                        const float *group_sum, int64_t stride)
{
    __m256 scale[2] = {_mm256_load_ps(p->scale[g]), _mm256_load_ps(p->scale[g] + 8)};
    __m256 bias[2] = {_mm256_load_ps(p->bias[g]), _mm256_load_ps(p->bias[g] + 8)};
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < 2; v++) {
            t->sum[r][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r][v]), scale[v], t->sum[r][v]);
            if (has_bias) {
                __m256 sum = _mm256_broadcast_ss((const float *)(const void *)((const char *)group_sum + r * stride));
                t->sum[r][v] = _mm256_fmadd_ps(sum, bias[v], t->sum[r][v]);
            }
        }
}

INLINE void add_to_result(const int rows, const tile *t, const float *d, int64_t stride, float *restrict c)
{
    UNROLLED for (int r = 0; r < rows; r++) {
        __m256 scale = _mm256_broadcast_ss((const float *)(const void *)((const char *)d + r * stride));
        UNROLLED for (int v = 0; v < 2; v++) {
            float *to = c + r * COLUMNS + 8 * v;
            _mm256_store_ps(to, _mm256_fmadd_ps(scale, t->sum[r][v], _mm256_load_ps(to)));
        }
    }
}

/* One group of `steps` times four bytes. */
INLINE void byte_group(const int rows, const int steps, const uint8_t *w, const int8_t *x, __m256i dots[ROWS][2])
{
    const int64_t stride = sizeof(h3k_chunk_i8);
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[ROWS][2];
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < 2; v++)
            sum[r][v] = _mm256_maddubs_epi16(load(w + 32 * v), broadcast(x + r * stride));
    UNROLLED for (int s = 1; s < steps; s++) {
        __m256i w0 = load(w + 64 * s), w1 = load(w + 64 * s + 32);
        UNROLLED for (int r = 0; r < rows; r++) {
            __m256i four = broadcast(x + r * stride + 4 * s);
            add_bytes(&sum[r][0], w0, four);
            add_bytes(&sum[r][1], w1, four);
        }
    }
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < 2; v++)
            dots[r][v] = _mm256_madd_epi16(sum[r][v], ones);
}

/* One group of 16 codes below 64. */
INLINE void six_bit_group(const int rows, const uint8_t *w, const int8_t *x, __m256i dots[ROWS][2])
{
    const int64_t stride = sizeof(h3k_chunk_i8);
    UNROLLED for (int r = 0; r < rows; r++)
        dots[r][0] = dots[r][1] = _mm256_setzero_si256();
    UNROLLED for (int s = 0; s < 4; s += 2) {
        const uint8_t *at = w + 64 * s;
        UNROLLED for (int r = 0; r < rows; r++) {
            __m256i x0 = broadcast(x + r * stride + 4 * s), x1 = broadcast(x + r * stride + 4 * s + 4);
            UNROLLED for (int v = 0; v < 2; v++)
                add_two_steps(&dots[r][v], load(at + 32 * v), x0, load(at + 64 + 32 * v), x1);
        }
    }
}

INLINE void byte_tile(const int rows, const int kind, const panel *p, const h3k_chunk_i8 *x, float *restrict c)
{
    const int64_t stride = sizeof *x;
    tile t;
    UNROLLED for (int r = 0; r < rows; r++)
        t.sum[r][0] = t.sum[r][1] = _mm256_setzero_ps();
    const int group = kind == BELOW_16 ? 32 : 16;
    for (int g = 0; g < H3K_CHUNK / group; g++) {
        __m256i dots[ROWS][2];
        const uint8_t *w = &p->quads[g * group / 4][0][0];
        if (kind == BELOW_64)
            six_bit_group(rows, w, x->q + g * group, dots);
        else
            byte_group(rows, group / 4, w, x->q + g * group, dots);
        scale_group(rows, &t, dots, p, g, true, kind == BELOW_16 ? x->sums.sum32 + g : x->sums.sum16 + g, stride);
    }
    add_to_result(rows, &t, &x->sums.d, stride, c);
}

/* `steps` pairs make a group. */
INLINE void wide_tile(const int rows, const int steps, const bool has_bias, const panel *p, const h3k_chunk_i16 *x,
                      float *restrict c)
{
    const int64_t stride = sizeof *x;
    tile t;
    UNROLLED for (int r = 0; r < rows; r++)
        t.sum[r][0] = t.sum[r][1] = _mm256_setzero_ps();
    const char *w = (const char *)p->pairs, *from = (const char *)x->q;
    for (int g = 0; g < H3K_CHUNK / 2 / steps; g++) {
        __m256i dots[ROWS][2];
        UNROLLED for (int r = 0; r < rows; r++)
            dots[r][0] = dots[r][1] = _mm256_setzero_si256();
        for (int s = 0; s < steps; s += 8, w += 8 * 64, from += 8 * 4)
            UNROLLED for (int i = 0; i < 8; i++) {
                __m256i w0 = load(w + 64 * i), w1 = load(w + 64 * i + 32);
                UNROLLED for (int r = 0; r < rows; r++) {
                    __m256i two = broadcast(from + r * stride + 4 * i);
                    add_words(&dots[r][0], w0, two);
                    add_words(&dots[r][1], w1, two);
                }
            }
        scale_group(rows, &t, dots, p, g, has_bias, steps == 8 ? x->sums.sum16 + g : x->sums.sum32 + g, stride);
    }
    add_to_result(rows, &t, &x->sums.d, stride, c);
}

/* All rows by full tiles; the rest runs the same operations on fewer rows. Six rows instead of four help the words by 6 %
 * (fewer loads for a product) and cost the bytes 3 % (their sums spill). */
#define REST(name, count)                                                                                              \
    case count:                                                                                                        \
        TILE_##name(count);                                                                                            \
        break
#define FUNCTION(name, type, full)                                                                                     \
    static void name(const panel *p, const void *chunks, int64_t rows, float *restrict c)                              \
    {                                                                                                                  \
        const type *x = chunks;                                                                                        \
        for (; rows >= (full); rows -= (full), x += (full), c += (full)*COLUMNS)                                       \
            TILE_##name(full);                                                                                         \
        switch (rows) {                                                                                                \
            REST(name, 5);                                                                                             \
            REST(name, 4);                                                                                             \
            REST(name, 3);                                                                                             \
            REST(name, 2);                                                                                             \
            REST(name, 1);                                                                                             \
        default:                                                                                                       \
            break;                                                                                                     \
        }                                                                                                              \
    }
#define TILE_multiply_below_16(count) byte_tile(count, BELOW_16, p, x, c)
#define TILE_multiply_below_32(count) byte_tile(count, BELOW_32, p, x, c)
#define TILE_multiply_below_64(count) byte_tile(count, BELOW_64, p, x, c)
#define TILE_multiply_wide_16(count) wide_tile(count, 8, true, p, x, c)
#define TILE_multiply_wide_32(count) wide_tile(count, 16, true, p, x, c)
#define TILE_multiply_plain_32(count) wide_tile(count, 16, false, p, x, c)
#define TILE_multiply_plain_256(count) wide_tile(count, 128, false, p, x, c)
#define TILE_multiply_plain_16(count) wide_tile(count, 8, false, p, x, c)
FUNCTION(multiply_below_16, h3k_chunk_i8, 4)
FUNCTION(multiply_below_32, h3k_chunk_i8, 4)
FUNCTION(multiply_below_64, h3k_chunk_i8, 4)
FUNCTION(multiply_wide_16, h3k_chunk_i16, 6)
FUNCTION(multiply_wide_32, h3k_chunk_i16, 6)
FUNCTION(multiply_plain_16, h3k_chunk_i16, 6)
FUNCTION(multiply_plain_32, h3k_chunk_i16, 6)
FUNCTION(multiply_plain_256, h3k_chunk_i16, 6)

static void multiply_wide(const panel *p, const void *chunks, int64_t rows, float *restrict c)
{
    switch (p->groups) {
    case 1:
        multiply_plain_256(p, chunks, rows, c);
        break;
    case 8:
        (p->has_bias ? multiply_wide_32 : multiply_plain_32)(p, chunks, rows, c);
        break;
    default:
        (p->has_bias ? multiply_wide_16 : multiply_plain_16)(p, chunks, rows, c);
        break;
    }
}

static void multiply(const void *restrict memory, const void *restrict chunks, int64_t rows, float *restrict c)
{
    static void (*const kernels[])(const panel *, const void *, int64_t, float *restrict) = {
        [BELOW_16] = multiply_below_16,
        [BELOW_32] = multiply_below_32,
        [BELOW_64] = multiply_below_64,
        [WIDE] = multiply_wide,
    };
    const panel *p = memory;
    kernels[p->layout](p, chunks, rows, c);
}

const h3k_integer_kernels h3k_integer_avx2 = {COLUMNS, packing, h3k_pack_chunk, fill, multiply};
