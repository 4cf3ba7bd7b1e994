/* What the parts of attention share: the job, the tiles of keys, and how a head's keys and values are kept.
 *
 * attention.c checks arguments and runs batches of heads; attention_float.c is the float32 arithmetic; the integer
 * arithmetic is attention_integer.h, compiled once per instruction set. Both cut the keys into the same tiles.
 */
#ifndef H3K_ATTENTION_H
#define H3K_ATTENTION_H

#include <stdbool.h>

#include "call.h"
#include "dispatch.h"

#define H3K_ATTENTION_KEYS 64        /* keys of a tile */
#define H3K_ATTENTION_ROWS 96        /* query rows of a task, float arithmetic */
#define H3K_ATTENTION_INTEGER_ROWS 48
#define H3K_ATTENTION_LANES 16       /* columns of an integer panel; head_dim is padded to a multiple */
#define H3K_ATTENTION_MAX_DIM 256

/* One call. `bits`: of a kept element, 0 where keys and values are read from qkv; `wide`: the products are of int16. */
typedef struct h3k_attention_job {
    const h3k_attention_args *args;
    const h3k_kernels *kernels;
    bool integer, wide;
    int32_t bits;
    int64_t width, padded_dim, tiles, tile_bytes, head_bytes, slot_bytes;
} h3k_attention_job;

/* Rows a query row, or any row of a block, sees: those below `first`, and from `low` to `high`. */
typedef struct {
    int64_t first, low, high;
} h3k_attention_view;

/* One product of integers: out[i][j] = sum over steps of four bytes, or two words, of x[i] and column j of the panel.
 * i < rows, a multiple of 12; j < 16; at most `group` steps may meet in an int16 sum. */
typedef struct {
    const uint8_t *x, *panel;
    int32_t *out;
    int64_t x_stride, rows, steps, out_stride; /* bytes; -, -; elements */
    int32_t group;
} h3k_attention_product;

/* Keeps the keys and values of one key head at `kept`; slot is a worker's scratch. */
typedef void h3k_attention_keep(const h3k_attention_job *job, int64_t group, uint8_t *kept, void *slot);
/* Computes the rows from q0 of one head. */
typedef void h3k_attention_block(const h3k_attention_job *job, int64_t head, int64_t q0, const uint8_t *kept, void *slot);

/* The integer arithmetic of one instruction set. */
struct h3k_attention_kernels {
    const char *bytes_name; /* products of int8 */
    const char *words_name; /* products of int16, null where NEAR is computed as FLOAT */
    h3k_attention_keep *keep;
    h3k_attention_block *block;
};

h3k_attention_keep h3k_attention_float_keep;
h3k_attention_block h3k_attention_float_block;
int64_t h3k_attention_float_slot_bytes(int64_t head_dim);

static inline int64_t h3k_attention_padded(int64_t head_dim)
{
    return h3k_ceil_div(head_dim, H3K_ATTENTION_LANES) * H3K_ATTENTION_LANES;
}

/* The view of rows q0 .. q0 + rows - 1 together; their ranges overlap or touch. */
static inline h3k_attention_view h3k_attention_seen(const h3k_attention_args *a, int64_t q0, int64_t rows)
{
    h3k_attention_view view = {.first = a->rows, .low = a->rows, .high = a->rows};
    if (a->window_rows > 0 && q0 >= a->window_start) {
        int64_t first_frame = (q0 - a->window_start) / a->window_rows;
        int64_t last_frame = (q0 + rows - 1 - a->window_start) / a->window_rows;
        int64_t from = first_frame > a->window_radius ? first_frame - a->window_radius : 0;
        int64_t frames = h3k_min(a->window_radius, a->rows) + last_frame + 1;
        view.first = h3k_min(a->window_start, a->rows);
        view.low = h3k_min(a->rows, a->window_start + from * a->window_rows);
        view.high = frames > (a->rows - view.first) / a->window_rows ? a->rows : view.first + frames * a->window_rows;
    }
    if (a->causal) {
        view.first = h3k_min(view.first, q0 + rows);
        view.high = h3k_min(view.high, q0 + rows);
    }
    return view;
}

/* Whether some key of the tile from k0 is seen; whether all `keys` are. */
static inline bool h3k_attention_sees_any(h3k_attention_view view, int64_t k0, int64_t keys)
{
    return k0 < view.first || (k0 < view.high && k0 + keys > view.low);
}

static inline bool h3k_attention_sees_all(h3k_attention_view view, int64_t k0, int64_t keys)
{
    int64_t stop = k0 + keys;
    return stop <= view.first || (stop <= view.high && (k0 >= view.low || view.low <= view.first));
}

/* Sets the hidden ones of the tile's scores to -inf. */
static inline void h3k_attention_hide(h3k_attention_view view, int64_t k0, int64_t keys, float *scores)
{
    for (int64_t j = 0; j < keys; j++)
        if (k0 + j >= view.first && (k0 + j < view.low || k0 + j >= view.high))
            scores[j] = -__builtin_inff();
}

#endif
