/* How the integer arithmetic of attention keeps a head: panels of integers and their scales. See attention_integer.h. */
#ifndef H3K_ATTENTION_PANELS_H
#define H3K_ATTENTION_PANELS_H

#include "attention.h"
#include "attention_vectors.h"
#include "panel.h"

#define KEYS H3K_ATTENTION_KEYS
#define LANES H3K_ATTENTION_LANES
#define BLOCK H3K_ATTENTION_INTEGER_ROWS
#define ROW_STEP 12
#define VECTORS (KEYS / 8)
#define K_TOP 127
#define WORD_TOP 4095   /* 64 values times WORD_P_TOP stay below 2^31 */
#define WORD_P_TOP 8191
#define NOTHING 1e-30f  /* a row or column of zeros gets this size */
#define LOWEST -1e30f   /* stands for a maximum of -inf */

ALWAYS int64_t step_bytes(const h3k_attention_job *job)
{
    return job->padded_dim * (job->wide ? 2 : 1);
}

/* Bytes of the keys' panels of a tile, and of the values'. */
ALWAYS int64_t panel_bytes(const h3k_attention_job *job)
{
    return KEYS * step_bytes(job);
}

ALWAYS int32_t group_of(const h3k_attention_job *job)
{
    return job->args->mode == H3K_MODE_FAST ? 4 : 2;
}

/* The key whose probability lies at this place of a row. */
ALWAYS int64_t key_of_place(int64_t place, const bool wide)
{
    int64_t run = wide ? 16 : 32, half = run / 2, at = place % run;
    return place / run * run + at % half / 4 * 8 + at / half * 4 + at % 4;
}

/* How a column becomes integers: at most `top`, sums of a group at most `sum`; `offset` of the other factor. */
typedef struct {
    float top, sum, offset;
    int32_t group;
} column_limits;

/* Largest sum of one sign over the terms that meet in one int16, per column: pairs of a step, over `group` steps. */
ALWAYS f8 largest_group(const float *panel, int64_t depth, int32_t group)
{
    f8 zero = splat(0.0f), worst = zero;
    for (int64_t k = 0; k < depth; k += 4 * group) {
        for (int64_t pair = k; pair < k + 4; pair += 2) {
            f8 above = zero, below = zero;
            for (int64_t i = pair; i < k + 4 * group; i += 4) {
                f8 x = load_floats(panel + i * 8), y = load_floats(panel + i * 8 + 8);
                above += lane_max(x, zero) + lane_max(y, zero);
                below += lane_max(-x, zero) + lane_max(-y, zero);
            }
            worst = lane_max(worst, lane_max(above, below));
        }
    }
    return worst;
}

ALWAYS f8 integers_per_unit(const float *panel, int64_t depth, const column_limits *limits, f8 *spoiled)
{
    f8 size = splat(NOTHING), poison = splat(0.0f);
    for (int64_t k = 0; k < depth; k++) {
        f8 x = load_floats(panel + k * 8);
        size = lane_max(size, lane_max(x, -x));
        poison += x * splat(0.0f);
    }
    *spoiled = poison;
    f8 per_unit = splat(limits->top) / size;
    if (limits->sum > 0.0f) {
        f8 sums = lane_max(splat(NOTHING), largest_group(panel, depth, limits->group));
        per_unit = -lane_max(-per_unit, -splat(limits->sum) / sums);
    }
    return per_unit;
}

ALWAYS void store_step(uint8_t *panel, int64_t step, int64_t half, u8 x)
{
    if (!MATRIX_STEPS) {
        memcpy(panel + step * LANES * 4 + half * 32, &x, sizeof x);
        return;
    }
    uint32_t lanes[8];
    memcpy(lanes, &x, sizeof x);
    uint8_t *to = panel + step / 2 * LANES * 8 + half * 64 + step % 2 * 4;
    for (int j = 0; j < 8; j++)
        memcpy(to + 8 * j, &lanes[j], 4);
}

/* Eight columns of floats, panel[depth][8], into one half of a panel of integers. */
ALWAYS void store_columns(const float *panel, int64_t depth, const column_limits *limits, const bool wide, int64_t half,
                          uint8_t *to, float *scale, float *start)
{
    f8 spoiled, per_unit = integers_per_unit(panel, depth, limits, &spoiled);
    u8 sum = {0};
    const int64_t terms = wide ? 2 : 4;
    for (int64_t step = 0; step * terms < depth; step++) {
        u8 packed = {0};
        for (int64_t i = 0; i < terms; i++) {
            i8 x = lane_round(load_floats(panel + (step * terms + i) * 8) * per_unit);
            sum += (u8)x;
            packed |= ((u8)x & (wide ? 0xffffu : 0xffu)) << (uint32_t)(i * (wide ? 16 : 8));
        }
        store_step(to, step, half, packed);
    }
    f8 size = splat(1.0f) / per_unit + spoiled;
    store_floats(scale, size);
    if (start != NULL)
        store_floats(start, lane_float((i8)sum) * size * splat(-limits->offset));
}

ALWAYS column_limits limits_of_keys(const h3k_attention_job *job)
{
    column_limits limits = {.top = K_TOP, .offset = Q_OFFSET, .group = group_of(job)};
    if (job->wide) {
        limits.offset = 0.0f;
        if (job->bits == 16)
            limits.top = job->padded_dim <= 128 ? WORD_TOP : WORD_TOP / 2;
    } else {
        limits.sum = K_SUM(limits.group);
    }
    if (job->bits == 4)
        limits.top = 7.0f;
    return limits;
}

static __attribute__((noinline)) void keep_keys(const h3k_attention_job *job, const float *keys, int64_t count, const float *mean, float *panel,
                      uint8_t *to, float *scale, float *start)
{
    int64_t d = job->args->head_dim, group_bytes = LANES * step_bytes(job);
    column_limits limits = limits_of_keys(job);
    for (int64_t j = 0; j < KEYS; j += 8) {
        int64_t here = h3k_min(8, count - j);
        memset(panel, 0, (size_t)job->padded_dim * 32);
        if (here > 0)
            h3k_pack_panel(keys + j * job->width, job->width, here, d, panel);
        for (int64_t k = 0; k < d; k++)
            store_floats(panel + k * 8, load_floats(panel + k * 8) - splat(mean[k]));
        uint8_t *group = to + j / LANES * group_bytes;
        if (job->wide)
            store_columns(panel, job->padded_dim, &limits, true, j / 8 % 2, group, scale + j, start + j);
        else
            store_columns(panel, job->padded_dim, &limits, false, j / 8 % 2, group, scale + j, start + j);
        for (int64_t i = here < 0 ? 0 : here; i < 8; i++) {
            scale[j + i] = 0.0f;
            start[j + i] = -__builtin_inff();
        }
    }
}

static __attribute__((noinline)) void keep_values(const h3k_attention_job *job, const float *values, int64_t count, const float *mean,
                        float *panel, uint8_t *to, float *scale)
{
    int64_t d = job->args->head_dim, group_bytes = KEYS * LANES * (job->wide ? 2 : 1);
    column_limits limits = {.top = V_TOP};
    if (job->bits == 4)
        limits.top = 7.0f;
    else if (job->wide)
        limits.top = job->bits == 8 ? 127.0f : WORD_TOP;
    for (int64_t c = 0; c < job->padded_dim; c += 8) {
        size_t bytes = (size_t)(c >= d ? 0 : h3k_min(8, d - c)) * sizeof *panel;
        f8 centre = load_floats(mean + c);
        for (int64_t place = 0; place < KEYS; place++) {
            int64_t key = job->wide ? key_of_place(place, true) : key_of_place(place, false);
            const float *from = values + key * job->width + c;
            f8 x = centre;
            if (key < count && bytes == sizeof x)
                x = load_floats(from);
            else if (key < count)
                memcpy(&x, from, bytes);
            store_floats(panel + place * 8, x - centre);
        }
        uint8_t *group = to + c / LANES * group_bytes;
        if (job->wide)
            store_columns(panel, KEYS, &limits, true, c / 8 % 2, group, scale + c, NULL);
        else
            store_columns(panel, KEYS, &limits, false, c / 8 % 2, group, scale + c, NULL);
    }
}

/* Mean over the sequence of channels 0..d-1, the rest 0. */
static __attribute__((noinline)) void mean_of_rows(const float *restrict rows, int64_t stride, int64_t count, int64_t d,
                                                   float *restrict mean, int64_t padded)
{
    memset(mean, 0, (size_t)padded * sizeof *mean);
    for (int64_t r = 0; r < count; r++, rows += stride) {
        int64_t c = 0;
        for (; c + 8 <= d; c += 8)
            store_floats(mean + c, load_floats(mean + c) + load_floats(rows + c));
        for (; c < d; c++)
            mean[c] += rows[c];
    }
    for (int64_t c = 0; c < d; c++)
        mean[c] /= (float)count;
}

/* Two int4 in a byte: element i and element i + count / 2, each plus 8. */
static void narrow(const uint8_t *from, int64_t count, const h3k_attention_job *job, uint8_t *to)
{
    const int16_t *words = (const int16_t *)(const void *)from;
    const int8_t *bytes = (const int8_t *)from;
    if (job->bits == 8) {
        for (int64_t i = 0; i < count; i++)
            to[i] = (uint8_t)words[i];
        return;
    }
    int64_t half = count / 2;
    for (int64_t i = 0; i < half; i++) {
        int32_t low = job->wide ? words[i] : bytes[i], high = job->wide ? words[i + half] : bytes[i + half];
        to[i] = (uint8_t)(((low + 8) & 15) | ((high + 8) & 15) << 4);
    }
}

static void widen(const uint8_t *restrict from, int64_t count, const h3k_attention_job *job, uint8_t *restrict to)
{
    int16_t *restrict words = (int16_t *)(void *)to;
    int8_t *restrict bytes = (int8_t *)to;
    int64_t half = count / 2;
    if (job->bits == 8) {
        for (int64_t i = 0; i < count; i++)
            words[i] = (int8_t)from[i];
    } else if (job->wide) {
        for (int64_t i = 0; i < half; i++) {
            words[i] = (int16_t)((from[i] & 15) - 8);
            words[i + half] = (int16_t)((from[i] >> 4) - 8);
        }
    } else {
        for (int64_t i = 0; i < half; i++) {
            bytes[i] = (int8_t)((from[i] & 15) - 8);
            bytes[i + half] = (int8_t)((from[i] >> 4) - 8);
        }
    }
}

ALWAYS bool is_narrow(const h3k_attention_job *job)
{
    return job->bits != (job->wide ? 16 : 8);
}

/* A kept head: mean of values [padded_dim], mean of keys, then the tiles. */
ALWAYS uint8_t *tile_of(const h3k_attention_job *job, const uint8_t *kept, int64_t index)
{
    return (uint8_t *)(uintptr_t)kept + job->padded_dim * 8 + index * job->tile_bytes;
}

static void keep(const h3k_attention_job *job, int64_t group, uint8_t *kept, void *slot)
{
    const h3k_attention_args *a = job->args;
    const float *keys = a->qkv + (a->heads + group) * a->head_dim, *values = keys + a->kv_heads * a->head_dim;
    float *value_mean = (float *)(void *)kept, *key_mean = value_mean + job->padded_dim;
    float *panel = slot;
    uint8_t *whole = (uint8_t *)slot + KEYS * job->padded_dim * (int64_t)sizeof *panel;
    int64_t elements = KEYS * job->padded_dim, part = elements * job->bits / 8;
    mean_of_rows(values, job->width, a->rows, a->head_dim, value_mean, job->padded_dim);
    mean_of_rows(keys, job->width, a->rows, a->head_dim, key_mean, job->padded_dim);
    for (int64_t t = 0; t < job->tiles; t++) {
        int64_t k0 = t * KEYS, count = h3k_min(KEYS, a->rows - k0);
        uint8_t *tile = tile_of(job, kept, t);
        float *scales = (float *)(void *)(tile + 2 * part);
        uint8_t *to = is_narrow(job) ? whole : tile;
        keep_keys(job, keys + k0 * job->width, count, key_mean, panel, to, scales, scales + KEYS);
        if (is_narrow(job))
            narrow(whole, elements, job, tile);
        to = is_narrow(job) ? whole : tile + part;
        keep_values(job, values + k0 * job->width, count, value_mean, panel, to, scales + 2 * KEYS);
        if (is_narrow(job))
            narrow(whole, elements, job, tile + part);
    }
}

#endif
