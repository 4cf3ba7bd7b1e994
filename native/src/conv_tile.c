/* Implicit matrix product: a task is TILE_ROWS output rows by TILE_COLUMNS output channels.
 *
 * Terms are walked in chunks of at most CHUNK floats (whole taps, or a part of one wide tap). Each chunk is gathered into
 * a tile that stays in the first cache levels and multiplied with the panels' same terms. Chunks depend on the geometry
 * of the convolution alone, so neither tiling nor threads change a sum.
 */
#include <string.h>

#include "conv_tile.h"
#include "dispatch.h"
#include "panel.h"

#define TILE_ROWS 64
#define TILE_COLUMNS 128
#define CHUNK 256

typedef struct {
    float gathered[TILE_ROWS * CHUNK];
    float sums[TILE_ROWS * TILE_COLUMNS];
} slot;

typedef struct {
    const h3k_conv_tile *conv;
    const h3k_call *call;
    const h3k_kernels *kernels;
    int64_t column_tiles;
} product;

/* Taps tap0..tap0+taps-1, of each the channels c0..c0+channels-1. */
typedef struct {
    int64_t tap0, taps, c0, channels;
} chunk;

static void copy_or_clear(float *restrict to, const float *restrict from, int64_t count)
{
    if (from == NULL) {
        for (int64_t i = 0; i < count; i++)
            to[i] = 0.0f;
    } else {
        for (int64_t i = 0; i < count; i++)
            to[i] = from[i];
    }
}

static const float *source_row(const h3k_conv_tile *conv, const float *line, int64_t index)
{
    if (index >= 0 && index < conv->length)
        return line + index * conv->in;
    return conv->reflect ? line + h3k_reflect(index, conv->length) * conv->in : NULL;
}

/* One output position: `taps` inner taps from `tap` on, out of one source line. */
static void gather_run(const h3k_conv_tile *conv, const float *line, int64_t index, int64_t taps, const chunk *part,
                       float *restrict to)
{
    bool inside = index >= 0 && index + taps <= conv->length;
    if (conv->dilation == 1 && inside && part->channels == conv->in) {
        copy_or_clear(to, line + index * conv->in, taps * conv->in);
        return;
    }
    for (int64_t v = 0; v < taps; v++) {
        const float *from = source_row(conv, line, index + v * conv->dilation);
        copy_or_clear(to + v * part->channels, from == NULL ? NULL : from + part->c0, part->channels);
    }
}

/* Output rows of one line, positions p0.., with the taps of `part` that belong to outer tap `outer`. */
static void gather_line(const h3k_conv_tile *conv, int64_t line, int64_t p0, int64_t count, const chunk *part,
                        float *restrict tile)
{
    int64_t depth = part->taps * part->channels;
    for (int64_t tap = part->tap0; tap < part->tap0 + part->taps;) {
        int64_t outer = tap / conv->inner, first = tap % conv->inner;
        int64_t taps = h3k_min(conv->inner - first, part->tap0 + part->taps - tap);
        const float *from = conv->source_line(conv, line, outer);
        float *to = tile + (tap - part->tap0) * part->channels;
        for (int64_t i = 0; i < count; i++) {
            int64_t index = (p0 + i) * conv->stride + first * conv->dilation - conv->pad;
            if (from == NULL)
                copy_or_clear(to + i * depth, NULL, taps * part->channels);
            else
                gather_run(conv, from, index, taps, part, to + i * depth);
        }
        tap += taps;
    }
}

static void gather(const h3k_conv_tile *conv, int64_t row0, int64_t rows, const chunk *part, float *restrict tile)
{
    int64_t depth = part->taps * part->channels;
    for (int64_t done = 0; done < rows;) {
        int64_t line = (row0 + done) / conv->positions, p0 = (row0 + done) % conv->positions;
        int64_t count = h3k_min(conv->positions - p0, rows - done);
        gather_line(conv, line, p0, count, part, tile + done * depth);
        done += count;
    }
}

static void finish(const h3k_conv_tile *conv, int64_t row0, int64_t rows, int64_t n0, const float *restrict sums)
{
    int64_t columns = h3k_min(TILE_COLUMNS, conv->out - n0);
    for (int64_t i = 0; i < rows; i++) {
        float *restrict y = conv->y + (row0 + i) * conv->ldy + n0;
        const float *restrict sum = sums + i * TILE_COLUMNS;
        for (int64_t j = 0; j < columns; j++)
            y[j] = conv->bias == NULL ? sum[j] : sum[j] + conv->bias[n0 + j];
    }
}

static void run_tile(const void *context, int64_t task, int32_t worker)
{
    const product *p = context;
    const h3k_conv_tile *conv = p->conv;
    slot *s = (slot *)(void *)h3k_slot(p->call->scratch, sizeof(slot), worker);
    int64_t row0 = task / p->column_tiles * TILE_ROWS, n0 = task % p->column_tiles * TILE_COLUMNS;
    int64_t rows = h3k_min(TILE_ROWS, conv->lines * conv->positions - row0);
    int64_t taps = conv->outer * conv->inner, terms = taps * conv->in;
    int64_t chunk_taps = conv->in > CHUNK ? 1 : CHUNK / conv->in;
    int64_t stop = h3k_min(n0 + TILE_COLUMNS, h3k_ceil_div(conv->out, H3K_PANEL) * H3K_PANEL);
    memset(s->sums, 0, sizeof s->sums);
    for (int64_t tap = 0; tap < taps; tap += chunk_taps) {
        for (int64_t c0 = 0; c0 < conv->in; c0 += CHUNK) {
            chunk part = {tap, h3k_min(chunk_taps, taps - tap), c0, h3k_min(CHUNK, conv->in - c0)};
            int64_t depth = part.taps * part.channels;
            gather(conv, row0, rows, &part, s->gathered);
            for (int64_t n = n0; n < stop; n += H3K_PANEL) {
                const float *panel = conv->panels + (n * terms + (tap * conv->in + c0) * H3K_PANEL);
                p->kernels->panel_product(s->gathered, depth, rows, depth, panel, s->sums + (n - n0), TILE_COLUMNS);
            }
        }
    }
    finish(conv, row0, rows, n0, s->sums);
}

int64_t h3k_conv_scratch_bytes(int64_t threads)
{
    return h3k_slots_bytes(sizeof(slot), threads);
}

h3k_status h3k_conv_tile_run(const h3k_call *call, const h3k_conv_tile *conv)
{
    product p = {.conv = conv, .call = call, .kernels = h3k_kernels_chosen()};
    p.column_tiles = h3k_ceil_div(conv->out, TILE_COLUMNS);
    int64_t row_tiles = h3k_ceil_div(conv->lines * conv->positions, TILE_ROWS);
    return h3k_parallel_for(call, row_tiles * p.column_tiles, run_tile, &p);
}
