/* Attention in integers with AVX2, which multiplies bytes into int16 sums that saturate: they never get that far.
 *
 * maddubs, add and madd take 4.5 instructions for four steps of 16 columns against 6 without the sums in int16.
 */
#include "attention.h"
#include "attention_lanes.h"

#define Q_TOP 100
#define Q_OFFSET 100
#define K_SUM(group) (float)(32767 / (Q_TOP + Q_OFFSET) - (group)) /* less half a unit for each term */
#define V_TOP 100
#define P_TOP 255
#define P_SUM (float)(32767 / V_TOP - 4)
#define MATRIX_STEPS 0
#define WIDE_PRODUCTS 1

LANE __m256i columns_at(const uint8_t *panel)
{
    return _mm256_loadu_si256((const void *)panel);
}

LANE __m256i add_pair(__m256i sum, __m256i x, const uint8_t *panel)
{
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(x, columns_at(panel)));
}

LANE void store_rows(const h3k_attention_product *p, int64_t row, const __m256i *low, const __m256i *high)
{
    UNROLLED for (int i = 0; i < 4; i++) {
        int32_t *to = p->out + (row + i) * p->out_stride;
        _mm256_storeu_si256((void *)to, low[i]);
        _mm256_storeu_si256((void *)(to + 8), high[i]);
    }
}

/* Two steps per int16 sum; four rows at once, their sums in registers. */
static __attribute__((noinline)) void dot_pairs(const h3k_attention_product *p)
{
    __m256i ones = _mm256_set1_epi16(1);
    for (int64_t row = 0; row < p->rows; row += 4) {
        const uint8_t *x = p->x + row * p->x_stride, *panel = p->panel;
        __m256i low[4], high[4];
        UNROLLED for (int i = 0; i < 4; i++)
            low[i] = high[i] = _mm256_setzero_si256();
        for (int64_t step = 0; step < p->steps; step += 2, panel += 128, x += 8) {
            UNROLLED for (int i = 0; i < 4; i++) {
                __m256i a = four_bytes(x + i * p->x_stride), b = four_bytes(x + i * p->x_stride + 4);
                __m256i first = add_pair(_mm256_maddubs_epi16(a, columns_at(panel)), b, panel + 64);
                __m256i second = add_pair(_mm256_maddubs_epi16(a, columns_at(panel + 32)), b, panel + 96);
                low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(first, ones));
                high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(second, ones));
            }
        }
        store_rows(p, row, low, high);
    }
}

/* Four steps per int16 sum: the columns stay in registers, the sums of all rows in memory. */
static __attribute__((noinline)) void dot_quads(const h3k_attention_product *p)
{
    __m256i ones = _mm256_set1_epi16(1), columns[8];
    const uint8_t *panel = p->panel, *x = p->x;
    for (int64_t step = 0; step < p->steps; step += 4, panel += 256, x += 16) {
        UNROLLED for (int s = 0; s < 8; s++)
            columns[s] = columns_at(panel + 32 * s);
        for (int64_t i = 0; i < p->rows; i++) {
            const uint8_t *row = x + i * p->x_stride;
            __m256i *to = (__m256i *)(void *)(p->out + i * p->out_stride), a = four_bytes(row);
            __m256i low = _mm256_maddubs_epi16(a, columns[0]), high = _mm256_maddubs_epi16(a, columns[1]);
            UNROLLED for (int s = 1; s < 4; s++) {
                a = four_bytes(row + 4 * s);
                low = _mm256_add_epi16(low, _mm256_maddubs_epi16(a, columns[2 * s]));
                high = _mm256_add_epi16(high, _mm256_maddubs_epi16(a, columns[2 * s + 1]));
            }
            low = _mm256_madd_epi16(low, ones);
            high = _mm256_madd_epi16(high, ones);
            if (step > 0) {
                low = _mm256_add_epi32(low, _mm256_loadu_si256(to));
                high = _mm256_add_epi32(high, _mm256_loadu_si256(to + 1));
            }
            _mm256_storeu_si256(to, low);
            _mm256_storeu_si256(to + 1, high);
        }
    }
}

LANE void dot_bytes(const h3k_attention_product *p)
{
    if (p->group == 4)
        dot_quads(p);
    else
        dot_pairs(p);
}

static __attribute__((noinline)) void dot_words(const h3k_attention_product *p)
{
    for (int64_t row = 0; row < p->rows; row += 4) {
        const uint8_t *x = p->x + row * p->x_stride, *panel = p->panel;
        __m256i low[4], high[4];
        UNROLLED for (int i = 0; i < 4; i++)
            low[i] = high[i] = _mm256_setzero_si256();
        for (int64_t step = 0; step < p->steps; step++, panel += 64, x += 4) {
            __m256i a = columns_at(panel), b = columns_at(panel + 32);
            UNROLLED for (int i = 0; i < 4; i++) {
                __m256i pair = four_bytes(x + i * p->x_stride);
                low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(pair, a));
                high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(pair, b));
            }
        }
        store_rows(p, row, low, high);
    }
}

#include "attention_integer.h"

const h3k_attention_kernels h3k_attention_avx2 = {
    .bytes_name = "maddubs", .words_name = "maddwd", .keep = keep, .block = block};
