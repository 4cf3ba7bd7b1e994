/* Weight rows as integers: w = scale[g] * q + bias[g], g = position / group. Included by each instruction set's file, so
 * that these loops are vectorised with its registers.
 *
 * Codes of up to six bits are unsigned (the constant a format takes off them is in the bias), eight-bit codes signed.
 * The scales are the float32 products that unpacking makes, the biases exact multiples: nothing is rounded twice.
 */
#ifndef H3K_CODES_H
#define H3K_CODES_H

#include <string.h>

#include "blocks.h"
#include "half.h"

#define H3K_MAX_GROUPS (H3K_CHUNK / 16)

typedef struct {
    int8_t q[H3K_CHUNK];
    float scale[H3K_MAX_GROUPS], bias[H3K_MAX_GROUPS];
} h3k_codes;

typedef uint8_t h3k_u8x16 __attribute__((vector_size(16)));

/* The low, then the high nibbles of 16 bytes. */
static inline void h3k_nibbles16(const uint8_t *restrict qs, int8_t *restrict q)
{
    h3k_u8x16 bytes;
    memcpy(&bytes, qs, sizeof bytes);
    h3k_u8x16 low = bytes & 15, high = bytes >> 4;
    memcpy(q, &low, sizeof low);
    memcpy(q + 16, &high, sizeof high);
}

static inline void h3k_codes_q8_0(const uint8_t *restrict b, int g, h3k_codes *restrict out)
{
    out->scale[g] = h3k_load_f16(b);
    out->bias[g] = 0.0f;
    memcpy(out->q + 32 * g, b + 2, 32);
}

static inline void h3k_codes_q4_0(const uint8_t *restrict b, int g, h3k_codes *restrict out)
{
    float d = h3k_load_f16(b);
    out->scale[g] = d;
    out->bias[g] = -8.0f * d;
    h3k_nibbles16(b + 2, out->q + 32 * g);
}

static inline void h3k_codes_q4_1(const uint8_t *restrict b, int g, h3k_codes *restrict out)
{
    out->scale[g] = h3k_load_f16(b);
    out->bias[g] = h3k_load_f16(b + 2);
    h3k_nibbles16(b + 4, out->q + 32 * g);
}

/* Nibbles as above with a fifth bit: bit j of qh belongs to element j. */
static inline void h3k_fives32(const uint8_t *restrict qh, const uint8_t *restrict qs, int8_t *restrict q)
{
    const h3k_u8x16 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    h3k_u8x16 bytes, all = {qh[0], qh[1], qh[2], qh[3]};
    memcpy(&bytes, qs, sizeof bytes);
    h3k_u8x16 first = __builtin_shufflevector(all, all, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    h3k_u8x16 second = __builtin_shufflevector(all, all, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    h3k_u8x16 low = (bytes & 15) | ((h3k_u8x16)((first & bit) != 0) & 16);
    h3k_u8x16 high = (bytes >> 4) | ((h3k_u8x16)((second & bit) != 0) & 16);
    memcpy(q, &low, sizeof low);
    memcpy(q + 16, &high, sizeof high);
}

static inline void h3k_codes_q5_0(const uint8_t *restrict b, int g, h3k_codes *restrict out)
{
    float d = h3k_load_f16(b);
    out->scale[g] = d;
    out->bias[g] = -16.0f * d;
    h3k_fives32(b + 2, b + 6, out->q + 32 * g);
}

static inline void h3k_codes_q5_1(const uint8_t *restrict b, int g, h3k_codes *restrict out)
{
    out->scale[g] = h3k_load_f16(b);
    out->bias[g] = h3k_load_f16(b + 2);
    h3k_fives32(b + 4, b + 8, out->q + 32 * g);
}

/* Scales and minima of q4_k and q5_k: the twelve bytes of blocks.h, four at a time. */
static inline void h3k_scales_k(const uint8_t *restrict b, h3k_codes *restrict out)
{
    float d = h3k_load_f16(b), dmin = h3k_load_f16(b + 2);
    uint32_t s[3], packed[4];
    memcpy(s, b + 4, sizeof s);
    packed[0] = s[0] & 0x3f3f3f3f;
    packed[1] = (s[2] & 0x0f0f0f0f) | (s[0] >> 6 & 0x03030303) << 4;
    packed[2] = s[1] & 0x3f3f3f3f;
    packed[3] = (s[2] >> 4 & 0x0f0f0f0f) | (s[1] >> 6 & 0x03030303) << 4;
    uint8_t bytes[16];
    memcpy(bytes, packed, sizeof bytes);
    for (int g = 0; g < 8; g++) {
        out->scale[g] = d * (float)bytes[g];
        out->bias[g] = -(dmin * (float)bytes[8 + g]);
    }
}

static inline void h3k_codes_q4_k(const uint8_t *restrict b, h3k_codes *restrict out)
{
    h3k_scales_k(b, out);
    for (int run = 0; run < 4; run++)
        for (int j = 0; j < 32; j++) {
            uint8_t byte = b[16 + 32 * run + j];
            out->q[64 * run + j] = (int8_t)(byte & 15);
            out->q[64 * run + 32 + j] = (int8_t)(byte >> 4);
        }
}

static inline void h3k_codes_q5_k(const uint8_t *restrict b, h3k_codes *restrict out)
{
    h3k_scales_k(b, out);
    const uint8_t *qh = b + 16, *qs = b + 48;
    for (int run = 0; run < 4; run++)
        for (int j = 0; j < 32; j++) {
            uint8_t byte = qs[32 * run + j], high = (uint8_t)(qh[j] >> 2 * run);
            out->q[64 * run + j] = (int8_t)((byte & 15) | (high & 1) << 4);
            out->q[64 * run + 32 + j] = (int8_t)(byte >> 4 | (high & 2) << 3);
        }
}

static inline void h3k_codes_q6_k(const uint8_t *restrict b, h3k_codes *restrict out)
{
    const uint8_t *ql = b, *qh = b + 128, *scales = b + 192;
    float d = h3k_load_f16(b + 208);
    for (int g = 0; g < 16; g++) {
        float scale = d * (float)(int8_t)scales[g];
        out->scale[g] = scale;
        out->bias[g] = -32.0f * scale;
    }
    for (int half = 0; half < 2; half++, ql += 64, qh += 32)
        for (int j = 0; j < 32; j++) {
            int8_t *q = out->q + 128 * half + j;
            q[0] = (int8_t)((ql[j] & 15) | (qh[j] & 3) << 4);
            q[32] = (int8_t)((ql[j + 32] & 15) | (qh[j] >> 2 & 3) << 4);
            q[64] = (int8_t)(ql[j] >> 4 | (qh[j] >> 4 & 3) << 4);
            q[96] = (int8_t)(ql[j + 32] >> 4 | (qh[j] >> 6) << 4);
        }
}

static inline void h3k_codes_q2_k(const uint8_t *restrict b, h3k_codes *restrict out)
{
    const uint8_t *scales = b, *qs = b + 16;
    float d = h3k_load_f16(b + 80), dmin = h3k_load_f16(b + 82);
    for (int g = 0; g < 16; g++) {
        out->scale[g] = d * (float)(scales[g] & 15);
        out->bias[g] = -(dmin * (float)(scales[g] >> 4));
    }
    for (int half = 0; half < 2; half++)
        for (int run = 0; run < 4; run++)
            for (int j = 0; j < 32; j++)
                out->q[128 * half + 32 * run + j] = (int8_t)(qs[32 * half + j] >> 2 * run & 3);
}

static inline void h3k_codes_q3_k(const uint8_t *restrict b, h3k_codes *restrict out)
{
    const uint8_t *mask = b, *qs = b + 32, *s = b + 96;
    float d = h3k_load_f16(b + 108);
    for (int g = 0; g < 16; g++) {
        int packed = (s[g % 8] >> g / 8 * 4 & 15) | (s[8 + g % 4] >> g / 4 * 2 & 3) << 4;
        float scale = d * (float)(packed - 32);
        out->scale[g] = scale;
        out->bias[g] = -4.0f * scale;
    }
    for (int half = 0; half < 2; half++)
        for (int run = 0; run < 4; run++)
            for (int j = 0; j < 32; j++) {
                int low = qs[32 * half + j] >> 2 * run & 3, high = mask[j] >> (4 * half + run) & 1;
                out->q[128 * half + 32 * run + j] = (int8_t)(low | high << 2);
            }
}

static inline void h3k_codes_i8_row(const h3k_weight *restrict w, int64_t row, const uint8_t *restrict b, int64_t count,
                                    h3k_codes *restrict out)
{
    memcpy(out->q, b, (size_t)count);
    out->scale[0] = h3k_row_scale(w, row);
    out->bias[0] = 0.0f;
}

/* Twice the value plus 16, 4..28; half the scale and -16 halves undo it. */
static inline void h3k_codes_nvfp4(const h3k_weight *restrict w, int64_t row, int64_t start, const uint8_t *restrict b,
                                   int64_t count, h3k_codes *restrict out)
{
    static const int8_t codes[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};
    const uint8_t *steps = NULL;
    for (int64_t g = 0; g < count / H3K_NVFP4_BLOCK; g++, b += H3K_NVFP4_BLOCK_BYTES) {
        if (g % H3K_NVFP4_TILE_BLOCKS == 0)
            steps = h3k_nvfp4_scales(w, row, start / H3K_NVFP4_BLOCK + g);
        float scale = 0.5f * (h3k_e4m3_values[steps[g % H3K_NVFP4_TILE_BLOCKS]] * w->scales.scale);
        out->scale[g] = scale;
        out->bias[g] = -16.0f * scale;
        for (int j = 0; j < H3K_NVFP4_BLOCK_BYTES; j++) {
            out->q[16 * g + 2 * j] = codes[b[j] >> 4];
            out->q[16 * g + 2 * j + 1] = codes[b[j] & 15];
        }
    }
}

/* Elements start..start+count of a row; the rest of the chunk becomes zero. count is whole blocks of the format. */
static inline void h3k_codes_of(const h3k_weight *restrict w, int64_t row, int64_t start, int64_t count,
                                h3k_codes *restrict out)
{
    const h3k_format *format = w->format;
    const uint8_t *b = h3k_weight_row(w, row) + start / format->block_elements * format->block_bytes;
    int blocks = (int)(count / 32);
#define EVERY_32(decode)                                                                                               \
    for (int g = 0; g < blocks; g++, b += format->block_bytes)                                                         \
    decode(b, g, out)
    switch (format->id) {
    case H3K_FORMAT_Q8_0:
        EVERY_32(h3k_codes_q8_0);
        break;
    case H3K_FORMAT_Q4_0:
        EVERY_32(h3k_codes_q4_0);
        break;
    case H3K_FORMAT_Q4_1:
        EVERY_32(h3k_codes_q4_1);
        break;
    case H3K_FORMAT_Q5_0:
        EVERY_32(h3k_codes_q5_0);
        break;
    case H3K_FORMAT_Q5_1:
        EVERY_32(h3k_codes_q5_1);
        break;
    case H3K_FORMAT_Q2_K:
        h3k_codes_q2_k(b, out);
        break;
    case H3K_FORMAT_Q3_K:
        h3k_codes_q3_k(b, out);
        break;
    case H3K_FORMAT_Q4_K:
        h3k_codes_q4_k(b, out);
        break;
    case H3K_FORMAT_Q5_K:
        h3k_codes_q5_k(b, out);
        break;
    case H3K_FORMAT_Q6_K:
        h3k_codes_q6_k(b, out);
        break;
    case H3K_FORMAT_I8_ROW:
        h3k_codes_i8_row(w, row, b, count, out);
        break;
    case H3K_FORMAT_NVFP4:
        h3k_codes_nvfp4(w, row, start, b, count, out);
        break;
    default:
        break;
    }
#undef EVERY_32
    if (count < H3K_CHUNK) {
        memset(out->q + count, 0, (size_t)(H3K_CHUNK - count));
        for (int64_t g = (count + format->group - 1) / format->group; g < H3K_CHUNK / format->group; g++)
            out->scale[g] = out->bias[g] = 0.0f;
    }
}

#endif
