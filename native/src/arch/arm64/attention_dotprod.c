/* Attention in integers with the dot products of signed bytes that every Apple processor has (SDOT).
 *
 * Both factors are signed, so queries need no offset and probabilities get seven bits. NEAR stays float32: NEON multiplies
 * int16 no faster than float32.
 */
#include "attention.h"
#include "attention_lanes.h"

#define Q_TOP 127
#define Q_OFFSET 0
#define K_SUM(group) 0.0f
#define V_TOP 127
#define P_TOP 127
#define P_SUM 0
#define MATRIX_STEPS 0
#define WIDE_PRODUCTS 0

/* Four rows at once by 16 columns in 16 registers; a row's next four steps are one register. */
static __attribute__((noinline)) void dot_bytes(const h3k_attention_product *p)
{
    for (int64_t row = 0; row < p->rows; row += 4) {
        const int8_t *x = (const int8_t *)p->x + row * p->x_stride, *panel = (const int8_t *)p->panel;
        int32x4_t sum[4][4];
        UNROLLED for (int i = 0; i < 16; i++)
            sum[i / 4][i % 4] = vdupq_n_s32(0);
        for (int64_t step = 0; step < p->steps; step += 4, x += 16, panel += 256) {
            int8x16_t four[4];
            UNROLLED for (int i = 0; i < 4; i++)
                four[i] = vld1q_s8(x + i * p->x_stride);
#define ADD_STEP(s)                                                                   \
    UNROLLED for (int j = 0; j < 4; j++) {                                            \
        int8x16_t columns = vld1q_s8(panel + 64 * (s) + 16 * j);                      \
        UNROLLED for (int i = 0; i < 4; i++)                                          \
            sum[i][j] = vdotq_laneq_s32(sum[i][j], columns, four[i], s);              \
    }
            ADD_STEP(0)
            ADD_STEP(1)
            ADD_STEP(2)
            ADD_STEP(3)
        }
        UNROLLED for (int i = 0; i < 16; i++)
            vst1q_s32(p->out + (row + i / 4) * p->out_stride + 4 * (i % 4), sum[i / 4][i % 4]);
    }
}

#include "attention_integer.h"

const h3k_attention_kernels h3k_attention_dotprod = {.bytes_name = "sdot", .keep = keep, .block = block};
