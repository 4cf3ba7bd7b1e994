/* Integer products for instruction sets with a four-way dot product of bytes. A file that includes this defines first:
 *
 *   LANES            int32 lanes of a vector
 *   UNSIGNED_CODES   1 where the dot product takes unsigned codes with signed x, 0 where both are signed
 *   integers         the vector type of LANES int32
 *   dot(sum, codes, x)       sum + codes . the four bytes of the int32 x, lane by lane
 *   fused(a, b, c)           a * b + c on float vectors, rounded once
 *
 * Unsigned dot products take signed codes 128 higher; the bias takes it back. Two planes of x share one sum: the high one is
 * added first and shifted up.
 */
#include <stdbool.h>

#include "dispatch.h"
#include "integer_panel.h"

#define COLUMNS (2 * LANES)
#define ROWS 6 /* of the largest tile */
#define UNROLLED _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

typedef float floats __attribute__((vector_size(4 * LANES)));

typedef struct {
    int32_t group, has_bias, two_planes, unused[13];
    float scale[H3K_MAX_GROUPS][COLUMNS], bias[H3K_MAX_GROUPS][COLUMNS];
    uint8_t quads[H3K_CHUNK / 4][COLUMNS][4];
} panel;
_Static_assert(sizeof(panel) <= H3K_PANEL_BYTES, "panel");

static int32_t packing(const h3k_format *format, int32_t mode)
{
    if (format->code_bits == 0)
        return mode == H3K_MODE_FAST ? H3K_PACKING_I8 : H3K_PACKING_NONE;
    return mode == H3K_MODE_NEAR ? H3K_PACKING_I8X2 : H3K_PACKING_I8;
}

/* Signed codes as unsigned ones. */
static void raise_codes(h3k_codes *restrict codes, int groups)
{
    for (int k = 0; k < H3K_CHUNK; k++)
        codes->q[k] = (int8_t)((uint8_t)codes->q[k] ^ 0x80);
    for (int g = 0; g < groups; g++)
        codes->bias[g] = -128.0f * codes->scale[g];
}

static void fill(const h3k_panel_source *source, int32_t kind, void *restrict memory)
{
    panel *p = memory;
    const h3k_format *format = source->weight->format;
    bool requantised = source->mode == H3K_MODE_FAST && format->group != H3K_CHUNK;
    bool has_signed_codes = requantised || format->code_bits == 8;
    h3k_codes rows[COLUMNS];
    p->group = requantised ? H3K_CHUNK : format->group;
    p->has_bias = UNSIGNED_CODES || !has_signed_codes;
    p->two_planes = kind == H3K_PACKING_I8X2;
    h3k_decode_columns(source, requantised, COLUMNS, rows);
    if (UNSIGNED_CODES && has_signed_codes)
        for (int j = 0; j < COLUMNS; j++)
            raise_codes(&rows[j], H3K_CHUNK / p->group);
    h3k_interleave(rows->scale, sizeof rows->scale, COLUMNS, p->scale);
    h3k_interleave(rows->bias, sizeof rows->bias, COLUMNS, p->bias);
    h3k_interleave(rows->q, H3K_CHUNK, COLUMNS, p->quads);
}

INLINE integers load_codes(const uint8_t *from)
{
    integers codes;
    memcpy(&codes, from, sizeof codes);
    return codes;
}

INLINE floats load_floats(const float *from)
{
    floats values;
    memcpy(&values, from, sizeof values);
    return values;
}

INLINE int32_t four_bytes(const int8_t *from)
{
    int32_t four;
    memcpy(&four, from, sizeof four);
    return four;
}

INLINE floats splat(float value)
{
    return value - (floats){0};
}

/* dots += `steps` times four codes of both vectors of columns; steps is a multiple of four. */
INLINE void add_dots(const int rows, integers dots[ROWS][2], const uint8_t *w, const int8_t *x, int64_t stride, int steps)
{
    for (int s = 0; s < steps; s += 4, w += 16 * COLUMNS, x += 16)
        UNROLLED for (int i = 0; i < 4; i++) {
            integers low = load_codes(w + 4 * COLUMNS * i), high = load_codes(w + 4 * COLUMNS * i + 4 * LANES);
            UNROLLED for (int r = 0; r < rows; r++) {
                int32_t four = four_bytes(x + r * stride + 4 * i);
                dots[r][0] = dot(dots[r][0], low, four);
                dots[r][1] = dot(dots[r][1], high, four);
            }
        }
}

/* Sum of a row's q over group g of `group` elements. */
INLINE float group_sum(const h3k_chunk_sums *sums, int group, int g)
{
    if (group != H3K_CHUNK)
        return group == 16 ? sums->sum16[g] : sums->sum32[g];
    float sum = 0.0f; /* integers below 2^24: exact in any order */
    for (int i = 0; i < 8; i++)
        sum += sums->sum32[i];
    return sum;
}

/* `rows` chunks of `stride` bytes at x; the planes of one chunk are H3K_CHUNK apart, its sums come behind them. */
INLINE void tile(const int rows, const bool two_planes, const panel *p, const int8_t *x, float *restrict c)
{
    const int64_t stride = two_planes ? sizeof(h3k_chunk_i8x2) : sizeof(h3k_chunk_i8);
    const h3k_chunk_sums *sums = (const void *)(x + (two_planes ? 2 : 1) * H3K_CHUNK);
    const int group = p->group;
    floats total[ROWS][2];
    UNROLLED for (int r = 0; r < rows; r++)
        total[r][0] = total[r][1] = (floats){0};
    for (int g = 0; g < H3K_CHUNK / group; g++) {
        const uint8_t *w = &p->quads[g * group / 4][0][0];
        integers dots[ROWS][2];
        UNROLLED for (int r = 0; r < rows; r++)
            dots[r][0] = dots[r][1] = (integers){0};
        add_dots(rows, dots, w, x + g * group, stride, group / 4);
        if (two_planes) {
            UNROLLED for (int r = 0; r < rows; r++)
                dots[r][0] <<= 8, dots[r][1] <<= 8;
            add_dots(rows, dots, w, x + H3K_CHUNK + g * group, stride, group / 4);
        }
        UNROLLED for (int v = 0; v < 2; v++) {
            floats scale = load_floats(p->scale[g] + v * LANES), bias = load_floats(p->bias[g] + v * LANES);
            UNROLLED for (int r = 0; r < rows; r++) {
                total[r][v] = fused(__builtin_convertvector(dots[r][v], floats), scale, total[r][v]);
                if (p->has_bias) {
                    const h3k_chunk_sums *own = (const void *)((const char *)sums + r * stride);
                    total[r][v] = fused(splat(group_sum(own, group, g)), bias, total[r][v]);
                }
            }
        }
    }
    UNROLLED for (int r = 0; r < rows; r++) {
        floats d = splat(((const h3k_chunk_sums *)(const void *)((const char *)sums + r * stride))->d);
        UNROLLED for (int v = 0; v < 2; v++) {
            floats result = fused(d, total[r][v], load_floats(c + r * COLUMNS + v * LANES));
            memcpy(c + r * COLUMNS + v * LANES, &result, sizeof result);
        }
    }
}

/* All rows by tiles of six; the rest runs the same operations on fewer rows. */
#define REST(count, planes)                                                                                            \
    case count:                                                                                                        \
        tile(count, planes, p, x, c);                                                                                  \
        break
#define MULTIPLY(name, planes, stride)                                                                                 \
    static void name(const panel *p, const int8_t *x, int64_t rows, float *restrict c)                                 \
    {                                                                                                                  \
        for (; rows >= ROWS; rows -= ROWS, x += ROWS * (stride), c += ROWS * COLUMNS)                                  \
            tile(ROWS, planes, p, x, c);                                                                               \
        switch (rows) {                                                                                                \
            REST(5, planes);                                                                                           \
            REST(4, planes);                                                                                           \
            REST(3, planes);                                                                                           \
            REST(2, planes);                                                                                           \
            REST(1, planes);                                                                                           \
        default:                                                                                                       \
            break;                                                                                                     \
        }                                                                                                              \
    }
MULTIPLY(multiply_one_plane, false, (int64_t)sizeof(h3k_chunk_i8))
MULTIPLY(multiply_two_planes, true, (int64_t)sizeof(h3k_chunk_i8x2))

static void multiply(const void *restrict memory, const void *restrict chunks, int64_t rows, float *restrict c)
{
    const panel *p = memory;
    (p->two_planes ? multiply_two_planes : multiply_one_plane)(p, chunks, rows, c);
}
