/* The product in float32: unpack a block of weight rows into panels, multiply, finish.
 *
 * A task is BLOCK_M rows of x by BLOCK_N weight rows. It walks k in chunks: the chunk of weights is unpacked to 64 KiB
 * of panels (they stay in the second-level cache for the BLOCK_M rows that follow), and products add to an accumulator
 * tile in scratch. Chunks and the order inside them do not depend on m, so neither do the sums.
 */
#include "dispatch.h"
#include "matmul.h"
#include "panel.h"

#define BLOCK_M 192
#define BLOCK_N 64

typedef struct {
    float panels[BLOCK_N * H3K_CHUNK];
    float rows[H3K_PANEL * H3K_CHUNK]; /* eight unpacked rows before they are packed */
    float sums[BLOCK_M * BLOCK_N];
    float value_sums[BLOCK_M * BLOCK_N];
} slot;

typedef struct {
    const h3k_product *product;
    const h3k_kernels *kernels;
    int64_t blocks_n;
} problem;

/* Where one task lies: rows m0.. of x, weight rows n0.. */
typedef struct {
    int64_t m0, rows, n0, columns;
} span;

static void unpack_panels(const h3k_weight *w, span at, int64_t k0, int64_t depth, slot *s)
{
    for (int64_t j = 0; j < at.columns; j += H3K_PANEL) {
        int64_t count = h3k_min(H3K_PANEL, at.columns - j);
        for (int64_t r = 0; r < count; r++)
            w->format->unpack(w, at.n0 + j + r, k0, depth, s->rows + r * H3K_CHUNK);
        h3k_pack_panel(s->rows, H3K_CHUNK, count, depth, s->panels + j * H3K_CHUNK);
    }
}

static void accumulate(const problem *p, const h3k_weight *w, span at, slot *s, float *sums)
{
    const h3k_matmul_args *a = p->product->args;
    memset(sums, 0, sizeof s->sums);
    for (int64_t k0 = 0; k0 < a->k; k0 += H3K_CHUNK) {
        int64_t depth = h3k_min(H3K_CHUNK, a->k - k0);
        unpack_panels(w, at, k0, depth, s);
        for (int64_t j = 0; j < at.columns; j += H3K_PANEL)
            p->kernels->panel_product(a->x + at.m0 * a->k + k0, a->k, at.rows, depth, s->panels + j * H3K_CHUNK,
                                      sums + j, BLOCK_N);
    }
}

static void run_tile(const void *context, int64_t task, int32_t worker)
{
    const problem *p = context;
    const h3k_matmul_args *a = p->product->args;
    slot *s = (slot *)(void *)h3k_slot(a->call.scratch, sizeof(slot), worker);
    span at = {.m0 = task / p->blocks_n * BLOCK_M, .n0 = task % p->blocks_n * BLOCK_N};
    at.rows = h3k_min(BLOCK_M, a->m - at.m0);
    at.columns = h3k_min(BLOCK_N, a->n - at.n0);
    accumulate(p, &p->product->weight, at, s, s->sums);
    if (h3k_is_gated(a))
        accumulate(p, &p->product->value, at, s, s->value_sums);
    for (int64_t i = 0; i < at.rows; i++) {
        float *sum = s->sums + i * BLOCK_N, *value = s->value_sums + i * BLOCK_N;
        h3k_add_bias(sum, a->bias == NULL ? NULL : a->bias + at.n0, at.columns);
        if (h3k_is_gated(a))
            h3k_add_bias(value, a->bias_value == NULL ? NULL : a->bias_value + at.n0, at.columns);
        h3k_activate(a->activation, sum, value, at.columns, a->y + (at.m0 + i) * a->ldy + at.n0);
    }
}

int64_t h3k_float_slot_bytes(void)
{
    return sizeof(slot);
}

h3k_status h3k_float_product(const h3k_product *product)
{
    const h3k_matmul_args *a = product->args;
    problem p = {.product = product, .kernels = h3k_kernels_chosen(), .blocks_n = h3k_ceil_div(a->n, BLOCK_N)};
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->m, BLOCK_M) * p.blocks_n, run_tile, &p);
}
