/* The products of attention_integer.h from a dot product of four unsigned by four signed bytes into int32.
 *
 * The including file gives sixteen_t, VNNI_ROWS (which divides 12) and sixteen_zero, sixteen_load, sixteen_store,
 * sixteen_bytes, sixteen_words: sum + x . panel for each of 16 columns, x four bytes or two words for all of them.
 */
#ifndef H3K_ATTENTION_VNNI_H
#define H3K_ATTENTION_VNNI_H

#define Q_TOP 127
#define Q_OFFSET 128
#define K_SUM(group) 0.0f
#define V_TOP 127
#define P_TOP 255
#define P_SUM 0
#define MATRIX_STEPS 0
#define WIDE_PRODUCTS 1

#define UNROLLED_ROWS _Pragma("GCC unroll 16")
#define DOT_TILE(name, add)                                                                              \
    static __attribute__((noinline)) void name(const h3k_attention_product *p)                           \
    {                                                                                                    \
        for (int64_t row = 0; row < p->rows; row += VNNI_ROWS) {                                         \
            const uint8_t *x = p->x + row * p->x_stride;                                                 \
            int32_t *out = p->out + row * p->out_stride;                                                 \
            sixteen_t sum[VNNI_ROWS];                                                                    \
            UNROLLED_ROWS for (int i = 0; i < VNNI_ROWS; i++)                                            \
                sum[i] = sixteen_zero();                                                                 \
            for (int64_t step = 0; step < p->steps; step++) {                                            \
                sixteen_t columns = sixteen_load(p->panel + 64 * step);                                  \
                UNROLLED_ROWS for (int i = 0; i < VNNI_ROWS; i++)                                        \
                    sum[i] = add(sum[i], x + i * p->x_stride + 4 * step, columns);                       \
            }                                                                                            \
            UNROLLED_ROWS for (int i = 0; i < VNNI_ROWS; i++)                                            \
                sixteen_store(out + i * p->out_stride, sum[i]);                                          \
        }                                                                                                \
    }

DOT_TILE(dot_words, sixteen_words)
DOT_TILE(dot_bytes, sixteen_bytes) /* int32 sums: a group has no limit */

#endif
