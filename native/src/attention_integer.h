/* Attention in integers: the source of every instruction set. An including file gives the primitives and the limits.
 *
 * Queries, keys, probabilities and values are integers with float32 scales: one per query row, one per key, one per
 * query row and tile of keys for probabilities, one per channel and tile for values. Keys lose their mean over the
 * sequence first (it changes no softmax), values theirs (it is added to the result). Sums are exact, so that a row's
 * result depends neither on the block it is computed in nor on the threads.
 *
 * A panel is 16 columns: [steps][16 columns][4 bytes], four int8 or two int16 of depth per step (I8MM: steps in pairs).
 * Keys' panels have one key per column, values' one channel per column and the tile's keys as depth, in the order in
 * which probabilities leave the registers (key_of_place).
 *
 * Without a dot-product instruction the products of bytes are summed in int16 first. No sum may leave int16: x is
 * unsigned, so a sum lies between -x_top * (negative part) and x_top * (positive part) of the panel's group of terms;
 * the scale of a key is chosen so that both parts stay below K_SUM, the scale of probabilities so that each group's
 * sum stays below P_SUM. Both limits are met exactly, for any input.
 *
 * Non-finite input: a scale becomes NaN. A query spoils its row, a key its head, a value its channel.
 */
#ifndef H3K_ATTENTION_INTEGER_H
#define H3K_ATTENTION_INTEGER_H

/* The including file defines, for products of bytes:
 *   Q_TOP, Q_OFFSET   queries are stored as value + Q_OFFSET, |value| <= Q_TOP
 *   K_SUM(group)      greatest sum of either sign in a group, 0: no limit
 *   V_TOP             values lie in -V_TOP..V_TOP
 *   P_TOP, P_SUM      greatest probability, greatest sum in a group of eight, 0: no limit
 *   MATRIX_STEPS      whether steps lie in pairs
 *   WIDE_PRODUCTS     whether there is dot_words
 * and dot_bytes, dot_words: out[i][j] = sum over steps of x[i] and column j, i < rows (a multiple of 12), j < 16. */
#include "attention_panels.h"

/* The slot of a worker while it computes a block. Rows beyond the last are computed and not stored. */
typedef struct {
    uint8_t *queries;       /* [BLOCK][query_bytes] */
    uint8_t *probabilities; /* [BLOCK][KEYS] of 1 or 2 bytes */
    int32_t *scores;        /* [BLOCK][KEYS] */
    int32_t *products;      /* [BLOCK][LANES] */
    float *sums;            /* [BLOCK][padded_dim] */
    float *query_scale, *maximum, *total;            /* [BLOCK] */
    float *tile_maximum, *tile_unit, *tile_sum, *shrink; /* [BLOCK]; tile_unit becomes the weight of a product */
    uint8_t *keys, *values; /* panels, where the kept form is narrower */
} integer_slot;

typedef struct {
    const uint8_t *keys, *values;
    const float *key_scale, *key_start, *value_scale; /* [KEYS], [KEYS], [padded_dim] */
} integer_tile;

ALWAYS integer_slot open_slot(const h3k_attention_job *job, void *memory)
{
    int64_t element = job->wide ? 2 : 1;
    integer_slot s = {.sums = memory};
    s.scores = (int32_t *)(void *)(s.sums + BLOCK * job->padded_dim);
    s.products = s.scores + BLOCK * KEYS;
    s.query_scale = (float *)(void *)(s.products + BLOCK * LANES);
    s.maximum = s.query_scale + BLOCK;
    s.total = s.maximum + BLOCK;
    s.tile_maximum = s.total + BLOCK;
    s.tile_unit = s.tile_maximum + BLOCK;
    s.tile_sum = s.tile_unit + BLOCK;
    s.shrink = s.tile_sum + BLOCK;
    s.queries = (uint8_t *)(s.shrink + BLOCK);
    s.probabilities = s.queries + BLOCK * job->padded_dim * element;
    s.keys = s.probabilities + BLOCK * KEYS * element;
    s.values = s.keys + panel_bytes(job);
    return s;
}

/* One query row of padded_dim floats; returns what one unit of its products with a key of scale 1 is in log2. */
ALWAYS float store_query(const float *row, int64_t padded, float per_log2, const bool wide, uint8_t *to)
{
    f8 size = splat(NOTHING), poison = splat(0.0f);
    for (int64_t c = 0; c < padded; c += 8) {
        f8 x = load_floats(row + c);
        size = lane_max(size, lane_max(x, -x));
        poison += x * splat(0.0f);
    }
    float top = !wide ? Q_TOP : padded <= 128 ? WORD_TOP : WORD_TOP / 2;
    float per_unit = top / largest(size);
    for (int64_t c = 0; c < padded; c += 16) {
        i8 x = lane_round(load_floats(row + c) * splat(per_unit));
        i8 y = lane_round(load_floats(row + c + 8) * splat(per_unit));
        if (wide)
            lane_store_16_words(x, y, (int16_t *)(void *)(to + 2 * c));
        else
            lane_store_16_bytes((i8)((u8)x + Q_OFFSET), (i8)((u8)y + Q_OFFSET), to + c);
    }
    return per_log2 / per_unit + total_of(poison);
}

static __attribute__((noinline)) void start_block(const h3k_attention_job *job, int64_t head, int64_t q0, int64_t rows, integer_slot *s)
{
    const h3k_attention_args *a = job->args;
    float row[H3K_ATTENTION_MAX_DIM] = {0}, per_log2 = (float)(1.4426950408889634 / __builtin_sqrt((double)a->head_dim));
    int64_t bytes = step_bytes(job);
    for (int64_t i = 0; i < BLOCK; i++) {
        if (i < rows)
            memcpy(row, a->qkv + (q0 + i) * job->width + head * a->head_dim, (size_t)a->head_dim * sizeof *row);
        else
            memset(row, 0, sizeof row);
        s->query_scale[i] = store_query(row, job->padded_dim, per_log2, job->wide, s->queries + i * bytes);
        s->maximum[i] = LOWEST;
        s->total[i] = 0.0f;
    }
    memset(s->sums, 0, (size_t)(BLOCK * job->padded_dim) * sizeof *s->sums);
}

/* Scores of eight rows become float exponents, relative to scale 1 of the query; their maxima go to tile_maximum. */
ALWAYS void scale_scores(const integer_slot *s, int64_t row, const float *scale, const float *const *start)
{
    f8 top[8];
    for (int i = 0; i < 8; i++) {
        int32_t *scores = s->scores + (row + i) * KEYS;
        top[i] = splat(-__builtin_inff());
        for (int j = 0; j < KEYS; j += 8) {
            f8 product = lane_float(load_integers(scores + j));
            f8 x = lane_fma(product, load_floats(scale + j), load_floats(start[i] + j));
            top[i] = lane_max(top[i], x);
            memcpy(scores + j, &x, sizeof x);
        }
    }
    f8 maximum = largest_of_rows(top) * load_floats(s->query_scale + row);
    store_floats(s->tile_maximum + row, lane_max(maximum, splat(LOWEST)));
}

/* Exponents become exponentials; tile_unit gets the size of one integer of the probabilities. */
ALWAYS f8 exponentiate_scores(const integer_slot *s, int64_t row, const bool wide)
{
    f8 group[8];
    for (int i = 0; i < 8; i++) {
        float *scores = (float *)(void *)(s->scores + (row + i) * KEYS);
        f8 scale = splat(s->query_scale[row + i]), maximum = splat(-s->tile_maximum[row + i]), half[2];
        for (int h = 0; h < 2; h++) {
            half[h] = splat(0.0f);
            for (int j = 32 * h; j < 32 * h + 32; j += 8) {
                f8 x = exp2_of(lane_fma(load_floats(scores + j), scale, maximum), wide);
                half[h] += x;
                store_floats(scores + j, x);
            }
            half[h] += __builtin_shufflevector(half[h], half[h], 1, 0, 3, 2, 5, 4, 7, 6);
        }
        group[i] = lane_max(half[0], half[1]);
    }
    if (wide || P_SUM == 0)
        return splat(wide ? WORD_P_TOP : P_TOP);
    return -lane_max(splat(-P_TOP), splat(-P_SUM) / largest_of_rows(group));
}

ALWAYS void store_probabilities(const integer_slot *s, int64_t row, f8 per_one, const bool wide)
{
    float factor[8];
    f8 sums[8];
    store_floats(factor, per_one);
    for (int i = 0; i < 8; i++) {
        const float *scores = (const float *)(const void *)(s->scores + (row + i) * KEYS);
        i8 p[VECTORS];
        u8 sum = {0};
        for (int j = 0; j < VECTORS; j++) {
            p[j] = lane_round(load_floats(scores + 8 * j) * splat(factor[i]));
            sum += (u8)p[j];
        }
        sums[i] = lane_float((i8)sum);
        if (wide)
            lane_store_words(p, (int16_t *)(void *)(s->probabilities + (row + i) * KEYS * 2));
        else
            lane_store_bytes(p, s->probabilities + (row + i) * KEYS);
    }
    store_floats(s->tile_unit + row, splat(1.0f) / per_one);
    store_floats(s->tile_sum + row, total_of_rows(sums));
}

/* Scores of all rows into integer probabilities relative to the row's maximum in this tile, eight rows at a time: each
 * step has eight independent chains. A row of a tile at the border of its view gets its own start values. */
static __attribute__((noinline)) void soften(const h3k_attention_job *job, const integer_tile *tile, int64_t q0,
                                             int64_t k0, int64_t rows, const integer_slot *s)
{
    for (int64_t row = 0; row < rows; row += 8) {
        float hidden[8][KEYS];
        const float *start[8];
        for (int64_t i = 0; i < 8; i++) {
            start[i] = tile->key_start;
            if (job->args->window_rows == 0)
                continue;
            h3k_attention_view view = h3k_attention_seen(job->args, h3k_min(q0 + row + i, job->args->rows - 1), 1);
            if (h3k_attention_sees_all(view, k0, KEYS))
                continue;
            start[i] = memcpy(hidden[i], start[i], sizeof hidden[i]);
            h3k_attention_hide(view, k0, KEYS, hidden[i]);
        }
        scale_scores(s, row, tile->key_scale, start);
        if (job->wide)
            store_probabilities(s, row, exponentiate_scores(s, row, true), true);
        else
            store_probabilities(s, row, exponentiate_scores(s, row, false), false);
    }
}

/* Running maxima and totals of all rows; tile_unit becomes the factor of the tile's products. */
static __attribute__((noinline)) void merge_maxima(const integer_tile *tile, const integer_slot *s)
{
    f8 poison = splat(0.0f);
    for (int j = 0; j < KEYS; j += 8)
        poison += load_floats(tile->key_scale + j) * splat(0.0f);
    f8 spoiled = splat(total_of(poison));
    for (int64_t i = 0; i < BLOCK; i += 8) {
        f8 before = load_floats(s->maximum + i), here = load_floats(s->tile_maximum + i);
        f8 after = lane_max(before, here), shrink = exp2_of(before - after, true);
        f8 unit = load_floats(s->tile_unit + i) * exp2_of(here - after, true);
        unit += load_floats(s->query_scale + i) * splat(0.0f) + spoiled;
        store_floats(s->maximum + i, after);
        store_floats(s->shrink + i, shrink);
        store_floats(s->tile_unit + i, unit);
        store_floats(s->total + i, lane_fma(load_floats(s->total + i), shrink, load_floats(s->tile_sum + i) * unit));
    }
}

/* sums = sums * shrink + products * unit * scale, 16 channels. */
static __attribute__((noinline)) void add_products(const integer_slot *s, int64_t rows, const float *scale, float *sums, int64_t padded)
{
    f8 low = load_floats(scale), high = load_floats(scale + 8);
    for (int64_t i = 0; i < rows; i++, sums += padded) {
        const int32_t *from = s->products + i * LANES;
        f8 unit = splat(s->tile_unit[i]), shrink = splat(s->shrink[i]);
        f8 a = lane_float(load_integers(from)) * low, b = lane_float(load_integers(from + 8)) * high;
        store_floats(sums, lane_fma(a, unit, load_floats(sums) * shrink));
        store_floats(sums + 8, lane_fma(b, unit, load_floats(sums + 8) * shrink));
    }
}

static integer_tile open_tile(const h3k_attention_job *job, const uint8_t *kept, int64_t index, const integer_slot *s)
{
    const uint8_t *at = tile_of(job, kept, index);
    int64_t elements = KEYS * job->padded_dim, part = elements * job->bits / 8;
    integer_tile tile = {.keys = at, .values = at + part, .key_scale = (const float *)(const void *)(at + 2 * part)};
    tile.key_start = tile.key_scale + KEYS;
    tile.value_scale = tile.key_start + KEYS;
    if (is_narrow(job)) {
        widen(tile.keys, elements, job, s->keys);
        widen(tile.values, elements, job, s->values);
        tile.keys = s->keys;
        tile.values = s->values;
    }
    return tile;
}

ALWAYS void multiply(const h3k_attention_job *job, const h3k_attention_product *product)
{
#if WIDE_PRODUCTS
    if (job->wide) {
        dot_words(product);
        return;
    }
#else
    (void)job;
#endif
    dot_bytes(product);
}

static void add_tile(const h3k_attention_job *job, const integer_tile *tile, int64_t q0, int64_t k0, int64_t rows,
                     const integer_slot *s)
{
    int64_t bytes = step_bytes(job), depth = KEYS * (job->wide ? 2 : 1);
    h3k_attention_product scores = {.x = s->queries, .x_stride = bytes, .rows = rows, .steps = bytes / 4,
                                    .out_stride = KEYS, .group = group_of(job)};
    for (int64_t j = 0; j < KEYS; j += LANES) {
        scores.panel = tile->keys + j * bytes;
        scores.out = s->scores + j;
        multiply(job, &scores);
    }
    soften(job, tile, q0, k0, rows, s);
    merge_maxima(tile, s);
    h3k_attention_product sums = {.x = s->probabilities, .x_stride = depth, .rows = rows, .steps = depth / 4,
                                  .out = s->products, .out_stride = LANES, .group = 4};
    for (int64_t c = 0; c < job->padded_dim; c += LANES) {
        sums.panel = tile->values + c * depth;
        multiply(job, &sums);
        add_products(s, rows, tile->value_scale + c, s->sums + c, job->padded_dim);
    }
}

static void block(const h3k_attention_job *job, int64_t head, int64_t q0, const uint8_t *kept, void *memory)
{
    const h3k_attention_args *a = job->args;
    const float *mean = (const float *)(const void *)kept;
    int64_t rows = h3k_min(BLOCK, a->rows - q0), whole = h3k_ceil_div(rows, ROW_STEP) * ROW_STEP;
    integer_slot s = open_slot(job, memory);
    h3k_attention_view view = h3k_attention_seen(a, q0, rows);
    start_block(job, head, q0, rows, &s);
    memset(s.tile_maximum, 0, 4 * BLOCK * sizeof *s.tile_maximum);
    for (int64_t t = 0; t < job->tiles; t++) {
        if (!h3k_attention_sees_any(view, t * KEYS, KEYS))
            continue;
        integer_tile tile = open_tile(job, kept, t, &s);
        add_tile(job, &tile, q0, t * KEYS, whole, &s);
    }
    for (int64_t i = 0; i < rows; i++) {
        float *y = a->y + ((q0 + i) * a->heads + head) * a->head_dim, *sums = s.sums + i * job->padded_dim;
        f8 per_total = splat(1.0f / s.total[i]);
        for (int64_t c = 0; c < a->head_dim; c += 8) {
            f8 x = lane_fma(load_floats(sums + c), per_total, load_floats(mean + c));
            memcpy(y + c, &x, (size_t)h3k_min(8, a->head_dim - c) * sizeof *y);
        }
    }
}

#endif
