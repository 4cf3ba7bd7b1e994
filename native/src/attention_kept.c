/* Conversion of a head's keys and values into their kept form and back, column by column of a panel. */
#include <math.h>
#include <string.h>

#include "attention_kept.h"
#include "half.h"
#include "panel.h"

#define KEYS H3K_ATTENTION_KEYS

static const float *keys_of(const h3k_attention_job *job, int64_t group)
{
    return job->args->qkv + (job->args->heads + group) * job->args->head_dim;
}

static const float *values_of(const h3k_attention_job *job, int64_t group)
{
    return keys_of(job, group) + job->args->kv_heads * job->args->head_dim;
}

void h3k_attention_pack_keys(const h3k_attention_job *job, int64_t group, int64_t k0, int64_t count, float *panels)
{
    int64_t d = job->args->head_dim;
    const float *keys = keys_of(job, group) + k0 * job->width;
    for (int64_t j = 0; j < count; j += H3K_PANEL)
        h3k_pack_panel(keys + j * job->width, job->width, h3k_min(H3K_PANEL, count - j), d, panels + j * d);
}

void h3k_attention_pack_values(const h3k_attention_job *job, int64_t group, int64_t k0, int64_t count, float *panels)
{
    int64_t d = job->args->head_dim;
    const float *values = values_of(job, group) + k0 * job->width;
    for (int64_t c = 0; c < d; c += H3K_PANEL) {
        size_t channels = (size_t)h3k_min(H3K_PANEL, d - c);
        float *panel = panels + c * KEYS;
        memset(panel, 0, KEYS * H3K_PANEL * sizeof *panel);
        for (int64_t j = 0; j < count; j++)
            memcpy(panel + j * H3K_PANEL, values + j * job->width + c, channels * sizeof *panel);
    }
}

/* Round to nearest even; NaN stays NaN. */
static uint16_t bf16_of(float x)
{
    uint32_t bits = h3k_bits_of_float(x);
    if (isnan(x))
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Nearest integer of |x| < 2^22; any for NaN. */
static int32_t nearest(float x)
{
    return (int32_t)(h3k_bits_of_float(x + 12582912.0f) - 0x4b400000u);
}

/* `shift` [8] is taken off the columns. A column with a NaN or an infinity gets the scale NaN. */
static void store_columns(const float *panel, int64_t depth, const float *shift, int32_t bits, uint8_t *to, float *scale)
{
    int32_t top = bits == 8 ? 127 : 7;
    int64_t half = depth / 2;
    for (int64_t j = 0; j < H3K_PANEL; j++) {
        float size = 0.0f, poison = 0.0f;
        for (int64_t k = 0; k < depth; k++) {
            float x = panel[k * H3K_PANEL + j] - shift[j];
            size = fabsf(x) > size ? fabsf(x) : size;
            poison += x * 0.0f;
        }
        float per_unit = size > 0.0f ? (float)top / size : 0.0f;
        scale[j] = size / (float)top + poison;
        for (int64_t k = 0; k < half; k++) {
            int32_t low = nearest((panel[k * H3K_PANEL + j] - shift[j]) * per_unit);
            int32_t high = nearest((panel[(k + half) * H3K_PANEL + j] - shift[j]) * per_unit);
            if (bits == 4) {
                to[k * H3K_PANEL + j] = (uint8_t)(((low + 8) & 15) | ((high + 8) & 15) << 4);
            } else {
                to[k * H3K_PANEL + j] = (uint8_t)low;
                to[(k + half) * H3K_PANEL + j] = (uint8_t)high;
            }
        }
    }
}

static void expand_columns(const uint8_t *restrict from, int64_t depth, int32_t bits, const float *restrict scale,
                           const float *restrict shift, float *restrict panel)
{
    int64_t half = depth / 2 * H3K_PANEL, whole = depth * H3K_PANEL;
    for (int64_t i = 0; bits == 4 && i < half; i += H3K_PANEL) {
        for (int64_t j = 0; j < H3K_PANEL; j++) {
            panel[i + j] = (float)((from[i + j] & 15) - 8) * scale[j] + shift[j];
            panel[half + i + j] = (float)((from[i + j] >> 4) - 8) * scale[j] + shift[j];
        }
    }
    for (int64_t i = 0; bits == 8 && i < whole; i += H3K_PANEL)
        for (int64_t j = 0; j < H3K_PANEL; j++)
            panel[i + j] = (float)(int8_t)from[i + j] * scale[j] + shift[j];
}

static void mean_of_rows(const float *rows, const h3k_attention_job *job, float *mean)
{
    int64_t d = job->args->head_dim;
    memset(mean, 0, (size_t)job->padded_dim * sizeof *mean);
    for (int64_t r = 0; r < job->args->rows; r++)
        for (int64_t c = 0; c < d; c++)
            mean[c] += rows[r * job->width + c];
    for (int64_t c = 0; c < d; c++)
        mean[c] /= (float)job->args->rows;
}

/* Where the parts of a kept tile lie. */
typedef struct {
    uint8_t *keys, *values;
    float *key_scale, *value_scale;
} kept_tile;

static kept_tile tile_of(const h3k_attention_job *job, const uint8_t *kept, int64_t index)
{
    int64_t part = KEYS * job->padded_dim * job->bits / 8;
    kept_tile tile = {.keys = (uint8_t *)(uintptr_t)kept + job->padded_dim * 8 + index * job->tile_bytes};
    tile.values = tile.keys + part;
    tile.key_scale = (float *)(void *)(tile.values + part);
    tile.value_scale = tile.key_scale + KEYS;
    return tile;
}

static void store_halves(const float *restrict from, int64_t count, uint8_t *to)
{
    uint16_t *restrict halves = (uint16_t *)(void *)to;
    for (int64_t i = 0; i < count; i++)
        halves[i] = bf16_of(from[i]);
}

/* Keys lose a row's worth of mean before they are transposed into columns. */
static void store_keys(const h3k_attention_job *job, float *panels, int64_t count, const float *mean, kept_tile tile)
{
    static const float none[H3K_PANEL] = {0};
    int64_t d = job->args->head_dim;
    for (int64_t j = 0; j < count; j += H3K_PANEL) {
        for (int64_t i = 0; i < d * H3K_PANEL; i++)
            panels[j * d + i] -= mean[i / H3K_PANEL];
        store_columns(panels + j * d, d, none, job->bits, tile.keys + j * d * job->bits / 8, tile.key_scale + j);
    }
}

void h3k_attention_float_keep(const h3k_attention_job *job, int64_t group, uint8_t *kept, void *slot)
{
    int64_t d = job->args->head_dim, wide = h3k_ceil_div(d, H3K_PANEL) * H3K_PANEL;
    float *value_mean = (float *)(void *)kept, *key_mean = value_mean + job->padded_dim, *panels = slot;
    mean_of_rows(values_of(job, group), job, value_mean);
    mean_of_rows(keys_of(job, group), job, key_mean);
    for (int64_t t = 0; t < job->tiles; t++) {
        int64_t k0 = t * KEYS, count = h3k_min(KEYS, job->args->rows - k0);
        kept_tile tile = tile_of(job, kept, t);
        h3k_attention_pack_keys(job, group, k0, count, panels);
        if (job->bits == 16)
            store_halves(panels, h3k_ceil_div(count, H3K_PANEL) * H3K_PANEL * d, tile.keys);
        else
            store_keys(job, panels, count, key_mean, tile);
        h3k_attention_pack_values(job, group, k0, count, panels);
        if (job->bits == 16)
            store_halves(panels, KEYS * wide, tile.values);
        for (int64_t c = 0; job->bits < 16 && c < wide; c += H3K_PANEL)
            store_columns(panels + c * KEYS, KEYS, value_mean + c, job->bits, tile.values + c * KEYS * job->bits / 8,
                          tile.value_scale + c);
    }
}

static void expand_halves(const uint8_t *from, int64_t count, float *restrict to)
{
    const uint16_t *restrict halves = (const uint16_t *)(const void *)from;
    for (int64_t i = 0; i < count; i++)
        to[i] = h3k_float_of_bf16(halves[i]);
}

void h3k_attention_expand(const h3k_attention_job *job, const uint8_t *kept, int64_t tile, float *keys, float *values)
{
    static const float none[H3K_PANEL] = {0};
    const float *value_mean = (const float *)(const void *)kept;
    int64_t d = job->args->head_dim, wide = h3k_ceil_div(d, H3K_PANEL) * H3K_PANEL;
    int64_t columns = h3k_ceil_div(h3k_min(KEYS, job->args->rows - tile * KEYS), H3K_PANEL) * H3K_PANEL;
    kept_tile t = tile_of(job, kept, tile);
    if (job->bits == 16) {
        expand_halves(t.keys, columns * d, keys);
        expand_halves(t.values, KEYS * wide, values);
        return;
    }
    for (int64_t j = 0; j < columns; j += H3K_PANEL)
        expand_columns(t.keys + j * d * job->bits / 8, d, job->bits, t.key_scale + j, none, keys + j * d);
    for (int64_t c = 0; c < wide; c += H3K_PANEL)
        expand_columns(t.values + c * KEYS * job->bits / 8, KEYS, job->bits, t.value_scale + c, value_mean + c,
                       values + c * KEYS);
}
