/* Attention in float32, by tiles of keys with a running maximum: memory does not grow with rows squared.
 *
 * A task is one head and H3K_ATTENTION_ROWS query rows. Key tiles are visited in order from the first, so a query row's
 * sums do not depend on its place in the block. The trap: a row may meet a tile where all scores are -inf before it meets
 * a finite one; exp(-inf - -inf) would be NaN, so a maximum of -inf is replaced by 0 (all its probabilities are 0).
 * Keys and values come from qkv, or from a narrower copy of the head that all its tasks share (attention_kept.h).
 */
#include <math.h>
#include <string.h>

#include "attention_kept.h"
#include "expf.h"
#include "panel.h"

#define BLOCK_Q H3K_ATTENTION_ROWS
#define BLOCK_K H3K_ATTENTION_KEYS

/* Pointers into one worker's slot. `wide` is head_dim rounded up to whole panels. */
typedef struct {
    float *q;      /* [BLOCK_Q, head_dim], scaled */
    float *keys;   /* [BLOCK_K / 8] panels of depth head_dim */
    float *values; /* [wide / 8] panels of depth BLOCK_K */
    float *scores; /* [BLOCK_Q, BLOCK_K] */
    float *sums;   /* [BLOCK_Q, wide] */
    float *maxima, *totals; /* [BLOCK_Q] */
    int64_t wide;
} slot;

/* One task: `rows` queries from q0 of head h, and the key tile at hand. */
typedef struct {
    int64_t h, q0, rows, k0, keys;
} tile;

static int64_t wide_dim(int64_t head_dim)
{
    return h3k_ceil_div(head_dim, H3K_PANEL) * H3K_PANEL;
}

static int64_t slot_floats(int64_t head_dim)
{
    int64_t wide = wide_dim(head_dim);
    return BLOCK_Q * head_dim + BLOCK_K * head_dim + BLOCK_K * wide + BLOCK_Q * BLOCK_K + BLOCK_Q * wide + 2 * BLOCK_Q;
}

static slot open_slot(int64_t d, void *memory)
{
    int64_t wide = wide_dim(d);
    slot s = {.q = memory, .wide = wide};
    s.keys = s.q + BLOCK_Q * d;
    s.values = s.keys + BLOCK_K * d;
    s.scores = s.values + BLOCK_K * wide;
    s.sums = s.scores + BLOCK_Q * BLOCK_K;
    s.maxima = s.sums + BLOCK_Q * wide;
    s.totals = s.maxima + BLOCK_Q;
    return s;
}

static void start(const h3k_attention_job *p, const tile *t, slot *s)
{
    const h3k_attention_args *a = p->args;
    float scale = (float)(1.0 / sqrt((double)a->head_dim));
    for (int64_t i = 0; i < t->rows; i++) {
        const float *q = a->qkv + (t->q0 + i) * p->width + t->h * a->head_dim;
        for (int64_t c = 0; c < a->head_dim; c++)
            s->q[i * a->head_dim + c] = q[c] * scale;
        s->maxima[i] = -INFINITY;
        s->totals[i] = 0.0f;
    }
    memset(s->sums, 0, (size_t)(BLOCK_Q * s->wide) * sizeof *s->sums);
}

/* Lane j % 8 keeps its own maximum; a NaN score is passed over here and comes back through exp. */
static float row_maximum(const float *restrict scores, int64_t count, float from)
{
    float lane[8];
    for (int j = 0; j < 8; j++)
        lane[j] = from;
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; j++)
            lane[j] = scores[i + j] > lane[j] ? scores[i + j] : lane[j];
    for (int j = 0; i < count; i++, j++)
        lane[j] = scores[i] > lane[j] ? scores[i] : lane[j];
    for (int j = 1; j < 8; j++)
        lane[0] = lane[j] > lane[0] ? lane[j] : lane[0];
    return lane[0];
}

/* scores = exp(scores - maximum); returns their sum in the lane order of row_maximum. */
static float exponentiate(float *restrict scores, int64_t count, float maximum)
{
    float lane[8] = {0};
    for (int64_t i = 0; i < count; i++)
        scores[i] = h3k_expf(scores[i] - maximum);
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; j++)
            lane[j] += scores[i + j];
    for (int j = 0; i < count; i++, j++)
        lane[j] += scores[i];
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

/* Hides what query i of the block may not see of the tile. */
static void hide(const h3k_attention_job *p, const tile *t, int64_t i, float *scores)
{
    if (!p->args->causal && p->args->window_rows == 0)
        return;
    h3k_attention_view view = h3k_attention_seen(p->args, t->q0 + i, 1);
    if (!h3k_attention_sees_all(view, t->k0, t->keys))
        h3k_attention_hide(view, t->k0, t->keys, scores);
}

static void soften(const h3k_attention_job *p, const tile *t, slot *s)
{
    for (int64_t i = 0; i < t->rows; i++) {
        float *scores = s->scores + i * BLOCK_K, *sums = s->sums + i * s->wide;
        hide(p, t, i, scores);
        float maximum = row_maximum(scores, t->keys, s->maxima[i]);
        float reference = maximum == -INFINITY ? 0.0f : maximum;
        float shrink = h3k_expf(s->maxima[i] - reference);
        s->totals[i] = s->totals[i] * shrink + exponentiate(scores, t->keys, reference);
        s->maxima[i] = maximum;
        for (int64_t c = 0; c < s->wide; c++)
            sums[c] *= shrink;
    }
}

static void add_tile(const h3k_attention_job *p, const tile *t, const uint8_t *kept, slot *s)
{
    int64_t d = p->args->head_dim, group = t->h / (p->args->heads / p->args->kv_heads);
    if (kept == NULL) {
        h3k_attention_pack_keys(p, group, t->k0, t->keys, s->keys);
        h3k_attention_pack_values(p, group, t->k0, t->keys, s->values);
    } else {
        h3k_attention_expand(p, kept, t->k0 / BLOCK_K, s->keys, s->values);
    }
    memset(s->scores, 0, BLOCK_Q * BLOCK_K * sizeof *s->scores);
    for (int64_t j = 0; j < t->keys; j += H3K_PANEL)
        p->kernels->panel_product(s->q, d, t->rows, d, s->keys + j * d, s->scores + j, BLOCK_K);
    soften(p, t, s);
    for (int64_t c = 0; c < d; c += H3K_PANEL)
        p->kernels->panel_product(s->scores, BLOCK_K, t->rows, t->keys, s->values + c * BLOCK_K, s->sums + c, s->wide);
}

void h3k_attention_float_block(const h3k_attention_job *job, int64_t head, int64_t q0, const uint8_t *kept, void *memory)
{
    const h3k_attention_args *a = job->args;
    slot s = open_slot(a->head_dim, memory);
    tile t = {.h = head, .q0 = q0, .rows = h3k_min(BLOCK_Q, a->rows - q0)};
    h3k_attention_view view = h3k_attention_seen(a, q0, t.rows);
    start(job, &t, &s);
    for (t.k0 = 0; t.k0 < a->rows; t.k0 += BLOCK_K) {
        t.keys = h3k_min(BLOCK_K, a->rows - t.k0);
        if (h3k_attention_sees_any(view, t.k0, t.keys))
            add_tile(job, &t, kept, &s);
    }
    for (int64_t i = 0; i < t.rows; i++) {
        float *y = a->y + ((t.q0 + i) * a->heads + t.h) * a->head_dim;
        for (int64_t c = 0; c < a->head_dim; c++)
            y[c] = s.sums[i * s.wide + c] / s.totals[i];
    }
}

int64_t h3k_attention_float_slot_bytes(int64_t head_dim)
{
    return slot_floats(head_dim) * (int64_t)sizeof(float);
}
