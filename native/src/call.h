/* What every entry point shares: the border check and the parallel loop. */
#ifndef H3K_CALL_H
#define H3K_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "h3k.h"

/* One tile of work. `worker` is below h3k_pool_thread_count() and selects a scratch slot; a worker runs one tile at a time. */
typedef void h3k_task(const void *context, int64_t task, int32_t worker);

/* Runs tasks 0..tasks-1, each once, in any order; polls call->cancel before each. thread_pool.c */
h3k_status h3k_parallel_for(const h3k_call *call, int64_t tasks, h3k_task *run, const void *context);

/* `args_bytes`: sizeof of the argument struct. `scratch_needed`: 0 when the entry needs none. */
static inline h3k_status h3k_check_call(const h3k_call *call, size_t args_bytes, int64_t scratch_needed)
{
    if (call->args_bytes != (int64_t)args_bytes)
        return H3K_BAD_ARGUMENT;
    if (scratch_needed > 0 && (call->scratch == NULL || call->scratch_bytes < scratch_needed))
        return H3K_BAD_SCRATCH;
    return H3K_OK;
}

static inline int64_t h3k_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t h3k_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Scratch of every worker starts at a multiple of this. */
#define H3K_SCRATCH_ALIGN 64

/* Bytes for `threads` slots of `slot_bytes` at any alignment of the buffer. */
static inline int64_t h3k_slots_bytes(int64_t slot_bytes, int64_t threads)
{
    int64_t padded = h3k_ceil_div(slot_bytes, H3K_SCRATCH_ALIGN) * H3K_SCRATCH_ALIGN;
    return padded * threads + H3K_SCRATCH_ALIGN;
}

/* Taken once per tile; what the slot holds then is nobody's: builds with H3K_POISON fill it with NaN (0xff bytes), so that
 * a tile that reads what an earlier one left behind is seen. A slot of 0 bytes is only a place and is left as it is. */
static inline float *h3k_slot(void *scratch, int64_t slot_bytes, int32_t worker)
{
    uintptr_t base = ((uintptr_t)scratch + H3K_SCRATCH_ALIGN - 1) / H3K_SCRATCH_ALIGN * H3K_SCRATCH_ALIGN;
    int64_t padded = h3k_ceil_div(slot_bytes, H3K_SCRATCH_ALIGN) * H3K_SCRATCH_ALIGN;
    float *slot = (float *)(base + (uintptr_t)(padded * worker));
#ifdef H3K_POISON
    memset(slot, 0xff, (size_t)slot_bytes);
#endif
    return slot;
}

/* Rows per task of an element-wise kernel: about 16 Ki elements, independent of the number of threads. */
static inline int64_t h3k_rows_per_task(int64_t columns)
{
    return columns >= 16384 ? 1 : 16384 / (columns > 0 ? columns : 1);
}

#endif
