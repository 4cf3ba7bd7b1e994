/* Attention in integers with I8MM: two rows of unsigned bytes by two columns of signed bytes (USMMLA), eight deep. */
#include "attention.h"
#include "attention_lanes.h"

#define Q_TOP 127
#define Q_OFFSET 128
#define K_SUM(group) 0.0f
#define V_TOP 127
#define P_TOP 255
#define P_SUM 0
#define MATRIX_STEPS 1
#define WIDE_PRODUCTS 0

/* Two pairs of rows at once by eight pairs of columns in 16 registers. */
static __attribute__((noinline)) void dot_bytes(const h3k_attention_product *p)
{
    for (int64_t row = 0; row < p->rows; row += 4) {
        const uint8_t *x = p->x + row * p->x_stride, *panel = p->panel;
        int32x4_t sum[2][8];
        UNROLLED for (int i = 0; i < 16; i++)
            sum[i / 8][i % 8] = vdupq_n_s32(0);
        for (int64_t step = 0; step < p->steps; step += 2, x += 8, panel += 128) {
            uint8x16_t first = vcombine_u8(vld1_u8(x), vld1_u8(x + p->x_stride));
            uint8x16_t second = vcombine_u8(vld1_u8(x + 2 * p->x_stride), vld1_u8(x + 3 * p->x_stride));
            UNROLLED for (int j = 0; j < 8; j++) {
                int8x16_t columns = vreinterpretq_s8_u8(vld1q_u8(panel + 16 * j));
                sum[0][j] = vusmmlaq_s32(sum[0][j], first, columns);
                sum[1][j] = vusmmlaq_s32(sum[1][j], second, columns);
            }
        }
        UNROLLED for (int i = 0; i < 8; i++) {
            int32_t *to = p->out + (row + i / 4 * 2) * p->out_stride + 4 * (i % 4);
            int64x2_t a = vreinterpretq_s64_s32(sum[i / 4][2 * (i % 4)]);
            int64x2_t b = vreinterpretq_s64_s32(sum[i / 4][2 * (i % 4) + 1]);
            vst1q_s32(to, vreinterpretq_s32_s64(vzip1q_s64(a, b)));
            vst1q_s32(to + p->out_stride, vreinterpretq_s32_s64(vzip2q_s64(a, b)));
        }
    }
}

#include "attention_integer.h"

const h3k_attention_kernels h3k_attention_i8mm = {.bytes_name = "usmmla", .keep = keep, .block = block};
