/* Snake activations of the sound decoder and encoder.
 *
 * Rows are short (four channels at full rate), so nothing loops over channels: filters run over a flat block of rows, and
 * the per-channel frequency and magnitude are repeated once per task to lie beside it. The trap of the anti-aliased form
 * is its edges: the upsampled signal repeats its own ends, which are not the ends of x filtered further out.
 */
#include <math.h>
#include <string.h>

#include "call.h"
#include "sinf.h"

#define TAPS 12
#define HALO 3 /* upsampled pairs needed on either side of an output row */

static int64_t rows_per_task(int64_t channels)
{
    int64_t rows = 4096 / channels;
    return rows < 32 ? 32 : rows;
}

/* Padded source, even and odd upsampled rows, frequency, magnitude. */
static int64_t slot_bytes(int64_t channels)
{
    int64_t rows = rows_per_task(channels);
    return ((rows + 4 * HALO) + 4 * (rows + 2 * HALO)) * channels * (int64_t)sizeof(float);
}

int64_t h3k_snake_scratch_bytes(int64_t channels, int64_t threads)
{
    return channels < 1 ? 0 : h3k_slots_bytes(slot_bytes(channels), threads);
}

static void repeat_row(float *restrict block, int64_t rows, int64_t channels)
{
    for (int64_t r = 1; r < rows; r++)
        memcpy(block + r * channels, block, (size_t)channels * sizeof *block);
}

/* u += magnitude * sin(frequency * u)^2 */
static void add_sine(float *restrict u, const float *restrict frequency, const float *restrict magnitude, int64_t count)
{
    int outside = 0;
    for (int64_t i = 0; i < count; i++)
        outside |= !(fabsf(frequency[i] * u[i]) <= H3K_SIN_LIMIT);
    if (outside == 0) {
        for (int64_t i = 0; i < count; i++) {
            float s = h3k_sin_without_sign(frequency[i] * u[i]);
            u[i] += magnitude[i] * (s * s);
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        float angle = frequency[i] * u[i];
        float s = fabsf(angle) <= H3K_SIN_LIMIT ? h3k_sin_without_sign(angle) : sinf(angle);
        u[i] += magnitude[i] * (s * s);
    }
}

static h3k_status check(const h3k_call *call, size_t args_bytes, int64_t time, int64_t channels)
{
    if (time < 1 || channels < 1)
        return H3K_BAD_ARGUMENT;
    return h3k_check_call(call, args_bytes, h3k_snake_scratch_bytes(channels, h3k_pool_thread_count(call->pool)));
}

static void snake_task(const void *context, int64_t task, int32_t worker)
{
    const h3k_snake_args *a = context;
    int64_t step = rows_per_task(a->channels), first = task * step * a->channels;
    int64_t rows = h3k_min(step, a->time - task * step), count = rows * a->channels;
    float *frequency = h3k_slot(a->call.scratch, slot_bytes(a->channels), worker);
    float *magnitude = frequency + step * a->channels;
    for (int64_t c = 0; c < a->channels; c++) {
        frequency[c] = a->alpha[c];
        magnitude[c] = 1.0f / (a->alpha[c] + 1e-9f);
    }
    repeat_row(frequency, rows, a->channels);
    repeat_row(magnitude, rows, a->channels);
    if (a->y != a->x)
        memcpy(a->y + first, a->x + first, (size_t)count * sizeof *a->y);
    add_sine(a->y + first, frequency, magnitude, count);
}

h3k_status h3k_snake(const h3k_snake_args *a)
{
    if (a == NULL || a->x == NULL || a->alpha == NULL || a->y == NULL)
        return H3K_BAD_ARGUMENT;
    h3k_status status = check(&a->call, sizeof *a, a->time, a->channels);
    if (status != H3K_OK)
        return status;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->time, rows_per_task(a->channels)), snake_task, a);
}

/* even[j] = 2 sum_{i=-3..2} f[5 - 2i] x[row + i], odd[j] = 2 sum_{i=-2..3} f[6 - 2i] x[row + i]; `x` starts at row - 3. */
static void upsample(const float *restrict x, const float *restrict f, int64_t channels, int64_t count,
                     float *restrict even, float *restrict odd)
{
    int64_t c = channels;
    for (int64_t j = 0; j < count; j++) {
        const float *v = x + j;
        float e = 2 * f[11] * v[0] + 2 * f[9] * v[c] + 2 * f[7] * v[2 * c];
        e = e + 2 * f[5] * v[3 * c] + 2 * f[3] * v[4 * c] + 2 * f[1] * v[5 * c];
        float o = 2 * f[10] * v[c] + 2 * f[8] * v[2 * c] + 2 * f[6] * v[3 * c];
        o = o + 2 * f[4] * v[4 * c] + 2 * f[2] * v[5 * c] + 2 * f[0] * v[6 * c];
        even[j] = e;
        odd[j] = o;
    }
}

/* y[j] = sum_k f[k] u[2 row + k - 5]; `even` and `odd` start at row - 3. */
static void downsample(const float *restrict even, const float *restrict odd, const float *restrict f, int64_t channels,
                       int64_t count, float *restrict y)
{
    int64_t c = channels;
    for (int64_t j = 0; j < count; j++) {
        const float *e = even + j, *o = odd + j;
        float sum = f[0] * o[0] + f[1] * e[c] + f[2] * o[c] + f[3] * e[2 * c] + f[4] * o[2 * c] + f[5] * e[3 * c];
        sum = sum + f[6] * o[3 * c] + f[7] * e[4 * c] + f[8] * o[4 * c] + f[9] * e[5 * c] + f[10] * o[5 * c];
        y[j] = sum + f[11] * e[6 * c];
    }
}

/* Where the blocks of one task lie in its slot. Row 0 of even and odd is output row m0 - HALO, of x it is m0 - 2 HALO. */
typedef struct {
    float *x, *even, *odd, *frequency, *magnitude;
    int64_t m0, rows; /* output rows */
} block;

static block place_block(const h3k_anti_aliased_snake_args *a, int64_t task, int32_t worker)
{
    int64_t step = rows_per_task(a->channels), pairs = (step + 2 * HALO) * a->channels;
    block b = {.m0 = task * step, .rows = h3k_min(step, a->time - task * step)};
    b.even = h3k_slot(a->call.scratch, slot_bytes(a->channels), worker);
    b.odd = b.even + pairs;
    b.frequency = b.odd + pairs;
    b.magnitude = b.frequency + pairs;
    b.x = b.magnitude + pairs;
    return b;
}

/* Rows before the signal become its first upsampled value, rows after it the last. */
static void repeat_ends(const block *b, int64_t time, int64_t channels)
{
    size_t row_bytes = (size_t)channels * sizeof(float);
    const float *first = b->even + (HALO - b->m0) * channels, *last = b->odd + (time - 1 - b->m0 + HALO) * channels;
    for (int64_t i = 0; i < b->rows + 2 * HALO; i++) {
        int64_t m = b->m0 - HALO + i;
        if (m >= 0 && m < time)
            continue;
        memcpy(b->even + i * channels, m < 0 ? first : last, row_bytes);
        memcpy(b->odd + i * channels, m < 0 ? first : last, row_bytes);
    }
}

static void anti_aliased_task(const void *context, int64_t task, int32_t worker)
{
    const h3k_anti_aliased_snake_args *a = context;
    block b = place_block(a, task, worker);
    int64_t c = a->channels, rows = b.rows + 2 * HALO;
    for (int64_t j = 0; j < c; j++) {
        b.frequency[j] = (float)exp((double)a->log_alpha[j]);
        b.magnitude[j] = 1.0f / ((float)exp((double)a->log_beta[j]) + 1e-9f);
    }
    repeat_row(b.frequency, rows, c);
    repeat_row(b.magnitude, rows, c);
    for (int64_t i = 0; i < rows + 2 * HALO; i++) {
        int64_t m = b.m0 - 2 * HALO + i;
        m = m < 0 ? 0 : h3k_min(m, a->time - 1);
        memcpy(b.x + i * c, a->x + m * c, (size_t)c * sizeof *b.x);
    }
    upsample(b.x, a->taps, c, rows * c, b.even, b.odd);
    add_sine(b.even, b.frequency, b.magnitude, rows * c);
    add_sine(b.odd, b.frequency, b.magnitude, rows * c);
    repeat_ends(&b, a->time, c);
    downsample(b.even, b.odd, a->taps, c, b.rows * c, a->y + b.m0 * c);
}

h3k_status h3k_anti_aliased_snake(const h3k_anti_aliased_snake_args *a)
{
    if (a == NULL || a->x == NULL || a->log_alpha == NULL || a->log_beta == NULL || a->taps == NULL || a->y == NULL)
        return H3K_BAD_ARGUMENT;
    h3k_status status = check(&a->call, sizeof *a, a->time, a->channels);
    if (status != H3K_OK)
        return status;
    return h3k_parallel_for(&a->call, h3k_ceil_div(a->time, rows_per_task(a->channels)), anti_aliased_task, a);
}
