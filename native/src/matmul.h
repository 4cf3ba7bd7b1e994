/* What the two ways of a matrix product share: the call behind the border check, and what is done with finished sums. */
#ifndef H3K_MATMUL_H
#define H3K_MATMUL_H

#include <string.h>

#include "blocks.h"
#include "call.h"
#include "expf.h"

typedef struct {
    const h3k_matmul_args *args;
    h3k_weight weight, value;
} h3k_product;

/* Bytes of one worker's slot. */
int64_t h3k_float_slot_bytes(void);
int64_t h3k_integer_slot_bytes(void);

h3k_status h3k_float_product(const h3k_product *p);                    /* matmul_float.c */
h3k_status h3k_integer_product(const h3k_product *p, int32_t packing); /* matmul_integer.c */

static inline bool h3k_is_gated(const h3k_matmul_args *a)
{
    return a->activation == H3K_ACTIVATION_SWIGLU;
}

/* sum += bias[0..count-1], or nothing without one */
static inline void h3k_add_bias(float *restrict sum, const float *restrict bias, int64_t count)
{
    for (int64_t j = 0; bias != NULL && j < count; j++)
        sum[j] += bias[j];
}

/* y = activation(sum); `value` for SWIGLU only */
static inline void h3k_activate(int32_t activation, const float *restrict sum, const float *restrict value,
                                int64_t count, float *restrict y)
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

#endif
