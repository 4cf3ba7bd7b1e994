/* silu(gate) * value where the two halves could not share one matmul. */
#include "call.h"
#include "dispatch.h"

#define COUNT_PER_TASK 16384

static void swiglu_run(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const h3k_swiglu_args *a = context;
    int64_t start = task * COUNT_PER_TASK, count = h3k_min(a->count - start, COUNT_PER_TASK);
    h3k_kernels_chosen()->rows->swiglu(a->gate + start, a->value + start, a->y + start, count);
}

h3k_status h3k_swiglu(const h3k_swiglu_args *a)
{
    if (a == NULL || h3k_check_call(&a->call, sizeof *a, 0) != H3K_OK || a->gate == NULL || a->value == NULL ||
        a->y == NULL || a->count < 0)
        return H3K_BAD_ARGUMENT;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->count, COUNT_PER_TASK), swiglu_run, a);
}
