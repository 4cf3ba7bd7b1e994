/* y = activation(x w^T + bias): the border check, and the choice between the float and the integer product. */
#include "matmul.h"

#include "dispatch.h"
#include "integer.h"

int32_t h3k_packing(int32_t format, int32_t mode)
{
    const h3k_format *f = h3k_format_of(format);
    if (f == NULL || mode < H3K_MODE_FLOAT || mode > H3K_MODE_FAST)
        return -1;
    const h3k_integer_kernels *kernels = h3k_kernels_chosen()->integer;
    return kernels == NULL || mode == H3K_MODE_FLOAT ? H3K_PACKING_NONE : kernels->packing(f, mode);
}

int64_t h3k_matmul_scratch_bytes(int64_t threads)
{
    int64_t a = h3k_float_slot_bytes(), b = h3k_integer_slot_bytes();
    return h3k_slots_bytes(a > b ? a : b, threads);
}

static bool has_possible_sizes(const h3k_matmul_args *a, const h3k_format *format)
{
    return a->m >= 0 && a->n >= 1 && a->k >= 1 && a->k % format->block_elements == 0 &&
           a->activation >= H3K_ACTIVATION_NONE && a->activation <= H3K_ACTIVATION_SWIGLU &&
           h3k_scales_fit(format, a->w_scales, a->w_scales_row) &&
           (!h3k_is_gated(a) || h3k_scales_fit(format, a->w_value_scales, a->w_value_scales_row));
}

static bool has_fitting_pointers(const h3k_matmul_args *a, int32_t packing)
{
    bool gated = h3k_is_gated(a), packed = packing != H3K_PACKING_NONE;
    bool input = packed ? a->x == NULL && a->packed != NULL : a->x != NULL && a->packed == NULL;
    bool plain = a->y != NULL && a->packed_y == NULL && a->packing_y == H3K_PACKING_NONE && a->ldy >= a->n;
    bool repacked = packed && a->y == NULL && a->packed_y != NULL && h3k_chunk_bytes(a->packing_y) > 0;
    return input && (plain || repacked) && a->w != NULL && gated == (a->w_value != NULL) &&
           (gated || a->bias_value == NULL);
}

h3k_status h3k_matmul(const h3k_matmul_args *a)
{
    if (a == NULL)
        return H3K_BAD_ARGUMENT;
    int64_t needed = h3k_matmul_scratch_bytes(h3k_pool_thread_count(a->call.pool));
    h3k_status status = h3k_check_call(&a->call, sizeof *a, needed);
    if (status != H3K_OK)
        return status;
    const h3k_format *format = h3k_format_of(a->format);
    int32_t packing = h3k_packing(a->format, a->mode);
    if (packing < 0 || !has_possible_sizes(a, format) || !has_fitting_pointers(a, packing))
        return H3K_BAD_ARGUMENT;
    h3k_product p = {
        .args = a,
        .weight = {.format = format, .data = a->w, .k = a->k},
        .value = {.format = format, .data = a->w_value, .k = a->k},
    };
    p.weight.scales = (h3k_scales){a->w_scales, a->w_scales_row, a->w_scale};
    p.value.scales = (h3k_scales){a->w_value_scales, a->w_value_scales_row, a->w_value_scale};
    return packing == H3K_PACKING_NONE ? h3k_float_product(&p) : h3k_integer_product(&p, packing);
}
