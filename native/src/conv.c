/* The three convolutions of the decoders and encoders, each as lines for conv_tile.c.
 *
 * The trap is the transposed one: with stride s its output rows fall into s phases, and each phase is an ordinary
 * convolution with every s-th tap, read backwards.
 */
#include "conv_tile.h"
#include "panel.h"

static h3k_status check(const h3k_call *call, size_t args_bytes)
{
    return h3k_check_call(call, args_bytes, h3k_conv_scratch_bytes(h3k_pool_thread_count(call->pool)));
}

static const float *conv1d_line(const h3k_conv_tile *conv, int64_t line, int64_t outer)
{
    const h3k_conv1d_args *a = conv->args;
    (void)line, (void)outer;
    return a->x;
}

static bool conv1d_is_possible(const h3k_conv1d_args *a)
{
    return a->x != NULL && a->panels != NULL && a->y != NULL && a->time >= 1 && a->in >= 1 && a->out >= 1 &&
           a->kernel >= 1 && a->stride >= 1 && a->dilation >= 1 && a->pad_left >= 0 && a->pad_right >= 0 &&
           a->time + a->pad_left + a->pad_right > a->dilation * (a->kernel - 1);
}

h3k_status h3k_conv1d(const h3k_conv1d_args *a)
{
    if (a == NULL)
        return H3K_BAD_ARGUMENT;
    h3k_status status = check(&a->call, sizeof *a);
    if (status != H3K_OK)
        return status;
    if (!conv1d_is_possible(a))
        return H3K_BAD_ARGUMENT;
    int64_t reach = a->time + a->pad_left + a->pad_right - a->dilation * (a->kernel - 1) - 1;
    h3k_conv_tile conv = {
        .args = a, .source_line = conv1d_line, .in = a->in, .out = a->out, .outer = 1, .inner = a->kernel,
        .length = a->time, .stride = a->stride, .dilation = a->dilation, .pad = a->pad_left,
        .lines = 1, .positions = reach / a->stride + 1,
        .panels = a->panels, .bias = a->bias, .y = a->y, .ldy = a->out,
    };
    return h3k_conv_tile_run(&a->call, &conv);
}

static const float *transpose_line(const h3k_conv_tile *conv, int64_t line, int64_t outer)
{
    const h3k_conv_transpose1d_args *a = conv->args;
    (void)line, (void)outer;
    return a->x;
}

static bool transpose_is_possible(const h3k_conv_transpose1d_args *a)
{
    return a->x != NULL && a->panels != NULL && a->y != NULL && a->time >= 1 && a->in >= 1 && a->out >= 1 &&
           a->kernel >= 1 && a->stride >= 1 && a->padding >= 0 &&
           (a->time - 1) * a->stride - 2 * a->padding + a->kernel >= 1;
}

/* Output rows t = first, first + stride, ...: those with (t + padding) % stride == phase. */
static h3k_status run_phase(const h3k_conv_transpose1d_args *a, int64_t phase, const float *panels)
{
    int64_t rows = (a->time - 1) * a->stride - 2 * a->padding + a->kernel;
    int64_t first = (phase - a->padding % a->stride + a->stride) % a->stride;
    if (first >= rows)
        return H3K_OK;
    int64_t taps = h3k_ceil_div(a->kernel - phase, a->stride);
    h3k_conv_tile conv = {
        .args = a, .source_line = transpose_line, .in = a->in, .out = a->out, .outer = 1, .inner = taps,
        .length = a->time, .stride = 1, .dilation = 1, .pad = taps - 1 - (first + a->padding) / a->stride,
        .lines = 1, .positions = h3k_ceil_div(rows - first, a->stride),
        .panels = panels, .bias = a->bias, .y = a->y + first * a->out, .ldy = a->stride * a->out,
    };
    return h3k_conv_tile_run(&a->call, &conv);
}

h3k_status h3k_conv_transpose1d(const h3k_conv_transpose1d_args *a)
{
    if (a == NULL)
        return H3K_BAD_ARGUMENT;
    h3k_status status = check(&a->call, sizeof *a);
    if (status != H3K_OK)
        return status;
    if (!transpose_is_possible(a))
        return H3K_BAD_ARGUMENT;
    const float *panels = a->panels;
    int64_t panel_rows = h3k_ceil_div(a->out, H3K_PANEL) * H3K_PANEL;
    for (int64_t phase = 0; phase < a->stride && status == H3K_OK; phase++) {
        status = run_phase(a, phase, panels);
        panels += h3k_ceil_div(a->kernel - phase, a->stride) * a->in * panel_rows;
    }
    return status;
}

static int64_t conv3d_positions(const h3k_conv3d_args *a, int64_t size)
{
    return (size + a->pad_before + a->pad_after - a->kernel) / a->stride + 1;
}

/* Output line = (frame, row); outer tap = (time, row). */
static const float *conv3d_line(const h3k_conv_tile *conv, int64_t line, int64_t outer)
{
    const h3k_conv3d_args *a = conv->args;
    int64_t rows = conv3d_positions(a, a->height);
    int64_t frame = line / rows * a->stride_t + outer / a->kernel - a->history;
    int64_t row = h3k_reflect(line % rows * a->stride + outer % a->kernel - a->pad_before, a->height);
    if (frame < 0 && a->past == NULL)
        return NULL;
    const float *frames = frame < 0 ? a->past + (frame + a->history) * a->height * a->width * a->in
                                    : a->x + frame * a->height * a->width * a->in;
    return frames + row * a->width * a->in;
}

static bool conv3d_is_possible(const h3k_conv3d_args *a)
{
    int64_t pads = a->pad_before + a->pad_after, side = h3k_min(a->height, a->width);
    return a->x != NULL && a->panels != NULL && a->y != NULL && a->frames >= 1 && side >= 1 && a->in >= 1 &&
           a->out >= 1 && a->kernel_t >= 1 && a->kernel >= 1 && a->stride_t >= 1 && a->stride >= 1 &&
           a->pad_before >= 0 && a->pad_after >= 0 && a->pad_before < side && a->pad_after < side &&
           a->history >= 0 && a->history + a->frames >= a->kernel_t && side + pads >= a->kernel;
}

h3k_status h3k_conv3d(const h3k_conv3d_args *a)
{
    if (a == NULL)
        return H3K_BAD_ARGUMENT;
    h3k_status status = check(&a->call, sizeof *a);
    if (status != H3K_OK)
        return status;
    if (!conv3d_is_possible(a))
        return H3K_BAD_ARGUMENT;
    int64_t frames = (a->history + a->frames - a->kernel_t) / a->stride_t + 1;
    h3k_conv_tile conv = {
        .args = a, .source_line = conv3d_line, .in = a->in, .out = a->out,
        .outer = a->kernel_t * a->kernel, .inner = a->kernel,
        .length = a->width, .stride = a->stride, .dilation = 1, .pad = a->pad_before, .reflect = true,
        .lines = frames * conv3d_positions(a, a->height), .positions = conv3d_positions(a, a->width),
        .panels = a->panels, .bias = a->bias, .y = a->y, .ldy = a->out,
    };
    return h3k_conv_tile_run(&a->call, &conv);
}
