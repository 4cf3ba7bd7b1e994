/* y = activation(x w^T + bias) for every weight format: unpack a block of weight rows into panels, multiply, finish.
 *
 * A task is BLOCK_M rows of x by BLOCK_N weight rows. It walks k in chunks: the chunk of weights is unpacked to 64 KiB
 * of panels (they stay in the second-level cache for the BLOCK_M rows that follow), and products add to an accumulator
 * tile in scratch. Chunks and the order inside them do not depend on m, so neither do the sums.
 */
#include <string.h>

#include "blocks.h"
#include "call.h"
#include "dispatch.h"
#include "expf.h"
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
    const h3k_matmul_args *args;
    const h3k_format *format;
    const h3k_kernels *kernels;
    int64_t blocks_n;
} product;

/* Where one task lies: rows m0.. of x, weight rows n0.. */
typedef struct {
    int64_t m0, rows, n0, columns;
} span;

static void unpack_panels(const product *p, const uint8_t *w, span at, int64_t k0, int64_t depth, slot *s)
{
    int64_t row_bytes = h3k_row_bytes(p->format, p->args->k);
    for (int64_t j = 0; j < at.columns; j += H3K_PANEL) {
        int64_t count = h3k_min(H3K_PANEL, at.columns - j);
        for (int64_t r = 0; r < count; r++)
            p->format->unpack(w + (at.n0 + j + r) * row_bytes, k0, depth, s->rows + r * H3K_CHUNK);
        h3k_pack_panel(s->rows, H3K_CHUNK, count, depth, s->panels + j * H3K_CHUNK);
    }
}

static void accumulate(const product *p, const void *w, span at, slot *s, float *sums)
{
    const h3k_matmul_args *a = p->args;
    memset(sums, 0, sizeof s->sums);
    for (int64_t k0 = 0; k0 < a->k; k0 += H3K_CHUNK) {
        int64_t depth = h3k_min(H3K_CHUNK, a->k - k0);
        unpack_panels(p, w, at, k0, depth, s);
        for (int64_t j = 0; j < at.columns; j += H3K_PANEL)
            p->kernels->panel_product(a->x + at.m0 * a->k + k0, a->k, at.rows, depth, s->panels + j * H3K_CHUNK,
                                      sums + j, BLOCK_N);
    }
}

static void add_bias(float *restrict row, const float *restrict bias, int64_t count)
{
    for (int64_t j = 0; bias != NULL && j < count; j++)
        row[j] += bias[j];
}

static void finish_row(int32_t activation, const float *restrict sum, const float *restrict value, int64_t count,
                       float *restrict y)
{
    switch (activation) {
    case H3K_ACTIVATION_SILU:
        for (int64_t j = 0; j < count; j++)
            y[j] = h3k_silu(sum[j]);
        break;
    case H3K_ACTIVATION_GELU_TANH:
        for (int64_t j = 0; j < count; j++)
            y[j] = h3k_gelu_tanh(sum[j]);
        break;
    case H3K_ACTIVATION_SWIGLU:
        for (int64_t j = 0; j < count; j++)
            y[j] = h3k_silu(sum[j]) * value[j];
        break;
    default:
        memcpy(y, sum, (size_t)count * sizeof *y);
        break;
    }
}

static void run_tile(const void *context, int64_t task, int32_t worker)
{
    const product *p = context;
    const h3k_matmul_args *a = p->args;
    slot *s = (slot *)(void *)h3k_slot(a->call.scratch, sizeof(slot), worker);
    span at = {.m0 = task / p->blocks_n * BLOCK_M, .n0 = task % p->blocks_n * BLOCK_N};
    at.rows = h3k_min(BLOCK_M, a->m - at.m0);
    at.columns = h3k_min(BLOCK_N, a->n - at.n0);
    bool gated = a->activation == H3K_ACTIVATION_SWIGLU;
    accumulate(p, a->w, at, s, s->sums);
    if (gated)
        accumulate(p, a->w_value, at, s, s->value_sums);
    for (int64_t i = 0; i < at.rows; i++) {
        float *sum = s->sums + i * BLOCK_N, *value = s->value_sums + i * BLOCK_N;
        add_bias(sum, a->bias == NULL ? NULL : a->bias + at.n0, at.columns);
        if (gated)
            add_bias(value, a->bias_value == NULL ? NULL : a->bias_value + at.n0, at.columns);
        finish_row(a->activation, sum, value, at.columns, a->y + (at.m0 + i) * a->ldy + at.n0);
    }
}

static bool has_possible_arguments(const h3k_matmul_args *a, const h3k_format *format)
{
    bool gated = a->activation == H3K_ACTIVATION_SWIGLU;
    return a->x != NULL && a->w != NULL && a->y != NULL && a->m >= 0 && a->n >= 1 && a->k >= 1 && a->ldy >= a->n &&
           a->k % format->block_elements == 0 && a->activation >= H3K_ACTIVATION_NONE &&
           a->activation <= H3K_ACTIVATION_SWIGLU && gated == (a->w_value != NULL) && a->reserved == 0 &&
           (gated || a->bias_value == NULL);
}

int64_t h3k_matmul_scratch_bytes(int64_t threads)
{
    return h3k_slots_bytes(sizeof(slot), threads);
}

static h3k_status matmul(const h3k_matmul_args *a, const h3k_format *format)
{
    if (a == NULL)
        return H3K_BAD_ARGUMENT;
    int64_t needed = h3k_matmul_scratch_bytes(h3k_pool_thread_count(a->call.pool));
    h3k_status status = h3k_check_call(&a->call, sizeof *a, needed);
    if (status != H3K_OK)
        return status;
    if (!has_possible_arguments(a, format))
        return H3K_BAD_ARGUMENT;
    product p = {.args = a, .format = format, .kernels = h3k_kernels_chosen()};
    p.blocks_n = h3k_ceil_div(a->n, BLOCK_N);
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->m, BLOCK_M) * p.blocks_n, run_tile, &p);
}

#define ENTRY(name)                                                                                                    \
    h3k_status h3k_matmul_##name(const h3k_matmul_args *a)                                                             \
    {                                                                                                                  \
        return matmul(a, &h3k_format_##name);                                                                          \
    }

H3K_FOR_EVERY_FORMAT(ENTRY)
