/* softmax(q k^T / sqrt(d)) v by tiles of keys with a running maximum: memory does not grow with rows squared.
 *
 * A task is one head and BLOCK_Q query rows. Key tiles are visited in order from the first, so a query row's sums do not
 * depend on its place in the block. The trap: a row may meet a tile where all scores are -inf before it meets a finite one;
 * exp(-inf - -inf) would be NaN, so a maximum of -inf is replaced by 0 (all its probabilities are 0).
 */
#include <math.h>
#include <string.h>

#include "call.h"
#include "dispatch.h"
#include "expf.h"
#include "panel.h"

#define BLOCK_Q 96
#define BLOCK_K 64
#define MAX_HEAD_DIM 256

/* Pointers into one worker's slot. `wide` is head_dim rounded up to whole panels. */
typedef struct {
    float *q;      /* [BLOCK_Q, head_dim], scaled */
    float *keys;   /* [BLOCK_K / 8] panels of depth head_dim */
    float *values; /* [wide / 8] panels of depth BLOCK_K */
    float *scores; /* [BLOCK_Q, BLOCK_K] */
    float *sums;   /* [BLOCK_Q, wide] */
    float *maxima, *totals; /* [BLOCK_Q] */
} slot;

typedef struct {
    const h3k_attention_args *args;
    const h3k_kernels *kernels;
    int64_t width, wide, blocks_q, slot_bytes;
} problem;

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

static slot slot_of(const problem *p, int32_t worker)
{
    int64_t d = p->args->head_dim;
    slot s = {.q = h3k_slot(p->args->call.scratch, p->slot_bytes, worker)};
    s.keys = s.q + BLOCK_Q * d;
    s.values = s.keys + BLOCK_K * d;
    s.scores = s.values + BLOCK_K * p->wide;
    s.sums = s.scores + BLOCK_Q * BLOCK_K;
    s.maxima = s.sums + BLOCK_Q * p->wide;
    s.totals = s.maxima + BLOCK_Q;
    return s;
}

static void start(const problem *p, const tile *t, slot *s)
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
    memset(s->sums, 0, (size_t)(BLOCK_Q * p->wide) * sizeof *s->sums);
}

static void pack_tile(const problem *p, const tile *t, slot *s)
{
    const h3k_attention_args *a = p->args;
    int64_t d = a->head_dim, group = t->h / (a->heads / a->kv_heads);
    const float *keys = a->qkv + t->k0 * p->width + (a->heads + group) * d;
    const float *values = keys + a->kv_heads * d;
    for (int64_t j = 0; j < t->keys; j += H3K_PANEL)
        h3k_pack_panel(keys + j * p->width, p->width, h3k_min(H3K_PANEL, t->keys - j), d, s->keys + j * d);
    for (int64_t c = 0; c < d; c += H3K_PANEL) {
        size_t count = (size_t)h3k_min(H3K_PANEL, d - c);
        float *panel = s->values + c * BLOCK_K;
        memset(panel, 0, BLOCK_K * H3K_PANEL * sizeof *panel);
        for (int64_t j = 0; j < t->keys; j++)
            memcpy(panel + j * H3K_PANEL, values + j * p->width + c, count * sizeof *panel);
    }
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

/* First key of the tile that query i of the block may not see. */
static int64_t first_hidden(const problem *p, const tile *t, int64_t i)
{
    if (!p->args->causal)
        return t->keys;
    int64_t visible = t->q0 + i - t->k0 + 1;
    return visible < 0 ? 0 : visible;
}

static void soften(const problem *p, const tile *t, slot *s)
{
    for (int64_t i = 0; i < t->rows; i++) {
        float *scores = s->scores + i * BLOCK_K, *sums = s->sums + i * p->wide;
        for (int64_t j = first_hidden(p, t, i); j < t->keys; j++)
            scores[j] = -INFINITY;
        float maximum = row_maximum(scores, t->keys, s->maxima[i]);
        float reference = maximum == -INFINITY ? 0.0f : maximum;
        float shrink = h3k_expf(s->maxima[i] - reference);
        s->totals[i] = s->totals[i] * shrink + exponentiate(scores, t->keys, reference);
        s->maxima[i] = maximum;
        for (int64_t c = 0; c < p->wide; c++)
            sums[c] *= shrink;
    }
}

static void add_tile(const problem *p, const tile *t, slot *s)
{
    int64_t d = p->args->head_dim;
    pack_tile(p, t, s);
    memset(s->scores, 0, BLOCK_Q * BLOCK_K * sizeof *s->scores);
    for (int64_t j = 0; j < t->keys; j += H3K_PANEL)
        p->kernels->panel_product(s->q, d, t->rows, d, s->keys + j * d, s->scores + j, BLOCK_K);
    soften(p, t, s);
    for (int64_t c = 0; c < d; c += H3K_PANEL)
        p->kernels->panel_product(s->scores, BLOCK_K, t->rows, t->keys, s->values + c * BLOCK_K, s->sums + c, p->wide);
}

static void run_block(const void *context, int64_t task, int32_t worker)
{
    const problem *p = context;
    const h3k_attention_args *a = p->args;
    slot s = slot_of(p, worker);
    tile t = {.h = task / p->blocks_q, .q0 = task % p->blocks_q * BLOCK_Q};
    t.rows = h3k_min(BLOCK_Q, a->rows - t.q0);
    start(p, &t, &s);
    int64_t stop = a->causal ? t.q0 + t.rows : a->rows;
    for (t.k0 = 0; t.k0 < stop; t.k0 += BLOCK_K) {
        t.keys = h3k_min(BLOCK_K, a->rows - t.k0);
        add_tile(p, &t, &s);
    }
    for (int64_t i = 0; i < t.rows; i++) {
        float *y = a->y + ((t.q0 + i) * a->heads + t.h) * a->head_dim;
        for (int64_t c = 0; c < a->head_dim; c++)
            y[c] = s.sums[i * p->wide + c] / s.totals[i];
    }
}

int64_t h3k_attention_scratch_bytes(int64_t head_dim, int64_t threads)
{
    return h3k_slots_bytes(slot_floats(head_dim) * 4, threads);
}

h3k_status h3k_attention(const h3k_attention_args *a)
{
    if (a == NULL || a->call.args_bytes != (int64_t)sizeof *a || a->qkv == NULL || a->y == NULL || a->rows < 0 ||
        a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads != 0 || a->head_dim < 4 || a->head_dim % 4 != 0 ||
        a->head_dim > MAX_HEAD_DIM || a->reserved != 0)
        return H3K_BAD_ARGUMENT;
    int64_t needed = h3k_attention_scratch_bytes(a->head_dim, h3k_pool_thread_count(a->call.pool));
    h3k_status status = h3k_check_call(&a->call, sizeof *a, needed);
    if (status != H3K_OK)
        return status;
    problem p = {.args = a, .kernels = h3k_kernels_chosen(), .slot_bytes = slot_floats(a->head_dim) * 4};
    p.width = (a->heads + 2 * a->kv_heads) * a->head_dim;
    p.wide = wide_dim(a->head_dim);
    p.blocks_q = h3k_ceil_div(a->rows, BLOCK_Q);
    return h3k_parallel_for(&a->call, a->heads * p.blocks_q, run_block, &p);
}
