/* The weight formats by number. */
#include <stddef.h>

#include "blocks.h"

const h3k_format *h3k_format_of(int32_t id)
{
    static const h3k_format *const formats[] = {
        &h3k_format_f32,  &h3k_format_f16,  &h3k_format_bf16, &h3k_format_q8_0, &h3k_format_q4_0,
        &h3k_format_q4_1, &h3k_format_q5_0, &h3k_format_q5_1, &h3k_format_q2_k, &h3k_format_q3_k,
        &h3k_format_q4_k, &h3k_format_q5_k, &h3k_format_q6_k, &h3k_format_i8_row, &h3k_format_f8_e4m3, &h3k_format_nvfp4,
    };
    return id >= 0 && id < (int32_t)(sizeof formats / sizeof *formats) ? formats[id] : NULL;
}
