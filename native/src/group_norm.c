/* Group norm with statistics per frame, then SiLU, in three passes: sums per block of positions, one scale and shift per
 * channel, and the result. Sums of x and x^2 in float64 lose nothing that matters: squares of floats are exact there.
 */
#include <math.h>

#include "call.h"
#include "expf.h"

#define BLOCK 4096 /* positions */

typedef struct {
    const h3k_group_norm_silu_args *args;
    double *sums; /* [frames][blocks][2][channels]: sum, sum of squares */
    float *scale; /* [frames][2][channels]: scale, shift */
    int64_t blocks;
} norm;

static int64_t sums_bytes(int64_t frames, int64_t positions, int64_t channels)
{
    return frames * h3k_ceil_div(positions, BLOCK) * 2 * channels * (int64_t)sizeof(double);
}

int64_t h3k_group_norm_scratch_bytes(int64_t frames, int64_t positions, int64_t channels)
{
    int64_t scale_bytes = frames * 2 * channels * (int64_t)sizeof(float);
    return h3k_slots_bytes(sums_bytes(frames, positions, channels) + scale_bytes, 1);
}

static void sum_block(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const norm *n = context;
    const h3k_group_norm_silu_args *a = n->args;
    int64_t frame = task / n->blocks, first = task % n->blocks * BLOCK;
    int64_t count = h3k_min(BLOCK, a->positions - first), channels = a->channels;
    const float *restrict x = a->x + (frame * a->positions + first) * channels;
    double *restrict sum = n->sums + task * 2 * channels, *restrict squares = sum + channels;
    for (int64_t c = 0; c < channels; c++)
        sum[c] = squares[c] = 0.0;
    for (int64_t p = 0; p < count; p++, x += channels) {
        for (int64_t c = 0; c < channels; c++) {
            double value = (double)x[c];
            sum[c] += value;
            squares[c] += value * value;
        }
    }
}

static void find_scale(const void *context, int64_t frame, int32_t worker)
{
    (void)worker;
    const norm *n = context;
    const h3k_group_norm_silu_args *a = n->args;
    int64_t channels = a->channels, width = channels / a->groups;
    float *scale = n->scale + frame * 2 * channels, *shift = scale + channels;
    for (int64_t c0 = 0; c0 < channels; c0 += width) {
        double sum = 0.0, squares = 0.0, count = (double)(width * a->positions);
        for (int64_t b = 0; b < n->blocks; b++) {
            const double *block = n->sums + (frame * n->blocks + b) * 2 * channels;
            for (int64_t c = c0; c < c0 + width; c++) {
                sum += block[c];
                squares += block[channels + c];
            }
        }
        double mean = sum / count, variance = squares / count - mean * mean;
        /* Rounding may leave a tiny negative variance; NaN must pass. */
        double inverse = 1.0 / sqrt((variance < 0.0 ? 0.0 : variance) + a->eps);
        for (int64_t c = c0; c < c0 + width; c++) {
            double exact = inverse * (double)a->weight[c];
            scale[c] = (float)exact;
            shift[c] = (float)((double)a->bias[c] - mean * exact);
        }
    }
}

static void apply_block(const void *context, int64_t task, int32_t worker)
{
    (void)worker;
    const norm *n = context;
    const h3k_group_norm_silu_args *a = n->args;
    int64_t frame = task / n->blocks, first = task % n->blocks * BLOCK, channels = a->channels;
    int64_t count = h3k_min(BLOCK, a->positions - first), at = (frame * a->positions + first) * channels;
    const float *restrict scale = n->scale + frame * 2 * channels, *restrict shift = scale + channels;
    const float *x = a->x + at;
    float *y = a->y + at;
    for (int64_t p = 0; p < count; p++, x += channels, y += channels) {
        for (int64_t c = 0; c < channels; c++)
            y[c] = h3k_silu(x[c] * scale[c] + shift[c]);
    }
}

static bool is_possible(const h3k_group_norm_silu_args *a)
{
    return a->x != NULL && a->weight != NULL && a->bias != NULL && a->y != NULL && a->frames >= 1 &&
           a->positions >= 1 && a->channels >= 1 && a->groups >= 1 && a->channels % a->groups == 0;
}

h3k_status h3k_group_norm_silu(const h3k_group_norm_silu_args *a)
{
    if (a == NULL || !is_possible(a))
        return H3K_BAD_ARGUMENT;
    int64_t needed = h3k_group_norm_scratch_bytes(a->frames, a->positions, a->channels);
    h3k_status status = h3k_check_call(&a->call, sizeof *a, needed);
    if (status != H3K_OK)
        return status;
    norm n = {.args = a, .blocks = h3k_ceil_div(a->positions, BLOCK)};
    n.sums = (double *)(void *)h3k_slot(a->call.scratch, 0, 0);
    n.scale = (float *)(n.sums + a->frames * n.blocks * 2 * a->channels);
    status = h3k_parallel_for(&a->call, a->frames * n.blocks, sum_block, &n);
    if (status == H3K_OK)
        status = h3k_parallel_for(&a->call, a->frames, find_scale, &n);
    if (status == H3K_OK)
        status = h3k_parallel_for(&a->call, a->frames * n.blocks, apply_block, &n);
    return status;
}
