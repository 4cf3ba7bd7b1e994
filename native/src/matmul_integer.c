/* The product in integers: for each chunk of 256 a panel of weights is unpacked into the first-level cache and multiplied
 * with all rows of the block.
 *
 * A task is BLOCK_M rows by block_n results, worked off in sub-blocks of 128 weight rows (64 gates and their 64 values for
 * SWIGLU). The sums of a sub-block stay in the second-level cache over all chunks. When the result is to be packed again
 * a task covers whole chunks of 256 results, so that their scale is known before anything leaves the caches.
 */
#include "dispatch.h"
#include "integer.h"
#include "matmul.h"

#define BLOCK_M 256
#define SUB_BLOCK 128

typedef struct {
    alignas(64) float sums[BLOCK_M * SUB_BLOCK];
    alignas(64) uint8_t panel[H3K_PANEL_BYTES];
    alignas(64) float results[BLOCK_M * H3K_CHUNK]; /* of a task that packs */
} slot;

typedef struct {
    const h3k_product *product;
    const h3k_integer_kernels *kernels;
    int32_t packing;
    int64_t block_n, blocks_n;
} problem;

/* Rows m0.. by results n0.. of one task or sub-block. */
typedef struct {
    int64_t m0, rows, n0, columns;
} span;

/* sums[panel][row][panel_columns] of one sub-block; panels of the gate come before those of the value. */
static void accumulate(const problem *p, span at, slot *s)
{
    const h3k_matmul_args *a = p->product->args;
    const int64_t wide = p->kernels->panel_columns;
    const int64_t parts = h3k_is_gated(a) ? 2 : 1, panels = SUB_BLOCK / wide / parts;
    memset(s->sums, 0, (size_t)(at.rows * SUB_BLOCK) * sizeof *s->sums);
    for (int64_t k0 = 0; k0 < a->k; k0 += H3K_CHUNK) {
        const uint8_t *chunks = h3k_packed_chunk((void *)(uintptr_t)a->packed, p->packing, a->m, k0 / H3K_CHUNK, at.m0);
        for (int64_t i = 0; i < parts * panels; i++) {
            int64_t offset = i % panels * wide;
            if (offset >= at.columns)
                continue;
            h3k_panel_source source = {
                .weight = i < panels ? &p->product->weight : &p->product->value,
                .n0 = at.n0 + offset,
                .columns = h3k_min(wide, at.columns - offset),
                .k0 = k0,
                .depth = h3k_min(H3K_CHUNK, a->k - k0),
                .mode = a->mode,
            };
            p->kernels->fill(&source, p->packing, s->panel);
            p->kernels->multiply(s->panel, chunks, at.rows, s->sums + i * wide * at.rows);
        }
    }
}

/* Bias and activation of one sub-block into rows `stride` floats apart. */
static void finish(const problem *p, span at, slot *s, float *y, int64_t stride)
{
    const h3k_matmul_args *a = p->product->args;
    const int64_t wide = p->kernels->panel_columns, panels = SUB_BLOCK / wide / (h3k_is_gated(a) ? 2 : 1);
    for (int64_t j = 0; j < at.columns; j += wide) {
        int64_t count = h3k_min(wide, at.columns - j), n = at.n0 + j;
        for (int64_t i = 0; i < at.rows; i++) {
            float *sum = s->sums + (j * at.rows) + i * wide, *value = NULL;
            h3k_add_bias(sum, a->bias == NULL ? NULL : a->bias + n, count);
            if (h3k_is_gated(a)) {
                value = sum + panels * wide * at.rows;
                h3k_add_bias(value, a->bias_value == NULL ? NULL : a->bias_value + n, count);
            }
            h3k_activate(a->activation, sum, value, count, y + i * stride + j);
        }
    }
}

static void pack_results(const problem *p, span at, const slot *s)
{
    const h3k_matmul_args *a = p->product->args;
    for (int64_t i = 0; i < at.rows; i++) {
        void *chunk = h3k_packed_chunk(a->packed_y, a->packing_y, a->m, at.n0 / H3K_CHUNK, at.m0 + i);
        p->kernels->pack(s->results + i * H3K_CHUNK, at.columns, a->packing_y, chunk);
    }
}

static void run_task(const void *context, int64_t task, int32_t worker)
{
    const problem *p = context;
    const h3k_matmul_args *a = p->product->args;
    slot *s = (slot *)(void *)h3k_slot(a->call.scratch, sizeof(slot), worker);
    span at = {.m0 = task / p->blocks_n * BLOCK_M, .n0 = task % p->blocks_n * p->block_n};
    at.rows = h3k_min(BLOCK_M, a->m - at.m0);
    at.columns = h3k_min(p->block_n, a->n - at.n0);
    const int64_t step = h3k_is_gated(a) ? SUB_BLOCK / 2 : SUB_BLOCK;
    for (int64_t j = 0; j < at.columns; j += step) {
        span sub = {at.m0, at.rows, at.n0 + j, h3k_min(step, at.columns - j)};
        accumulate(p, sub, s);
        if (a->packed_y == NULL)
            finish(p, sub, s, a->y + sub.m0 * a->ldy + sub.n0, a->ldy);
        else
            finish(p, sub, s, s->results + j, H3K_CHUNK);
    }
    if (a->packed_y != NULL)
        pack_results(p, at, s);
}

int64_t h3k_integer_slot_bytes(void)
{
    return sizeof(slot);
}

h3k_status h3k_integer_product(const h3k_product *product, int32_t packing)
{
    const h3k_matmul_args *a = product->args;
    problem p = {.product = product, .kernels = h3k_kernels_chosen()->integer, .packing = packing};
    p.block_n = a->packed_y != NULL ? H3K_CHUNK : h3k_is_gated(a) ? SUB_BLOCK / 2 : SUB_BLOCK;
    p.blocks_n = h3k_ceil_div(a->n, p.block_n);
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->m, BLOCK_M) * p.blocks_n, run_task, &p);
}

/* ---- packing of x */
typedef struct {
    const h3k_pack_rows_args *args;
    const h3k_integer_kernels *kernels;
} packer;

static void pack_row_block(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const packer *p = context;
    const h3k_pack_rows_args *a = p->args;
    int64_t step = h3k_rows_per_task(a->columns);
    for (int64_t row = task * step; row < h3k_min(a->rows, (task + 1) * step); row++)
        for (int64_t k0 = 0; k0 < a->columns; k0 += H3K_CHUNK)
            p->kernels->pack(a->x + row * a->columns + k0, h3k_min(H3K_CHUNK, a->columns - k0), a->packing,
                             h3k_packed_chunk(a->packed, a->packing, a->rows, k0 / H3K_CHUNK, row));
}

int64_t h3k_packed_bytes(int64_t rows, int64_t columns, int64_t packing)
{
    return h3k_ceil_div(columns, H3K_CHUNK) * rows * h3k_chunk_bytes((int32_t)packing);
}

h3k_status h3k_pack_rows(const h3k_pack_rows_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->x == NULL || a->packed == NULL ||
        (uintptr_t)a->packed % 64 != 0 || a->rows < 0 || a->columns < 1 || h3k_chunk_bytes(a->packing) == 0 ||
        a->reserved != 0)
        return H3K_BAD_ARGUMENT;
    packer p = {.args = a, .kernels = h3k_kernels_chosen()->integer};
    if (p.kernels == NULL)
        return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->rows, h3k_rows_per_task(a->columns)), pack_row_block, &p);
}
