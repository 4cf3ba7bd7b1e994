/* The three convolutions against their equations written as plain loops.
 *
 * Tier: independent transcription, compared for equality on small integers. Cannot catch rounding faults; the Python tests
 * compare real numbers.
 */
#include "check.h"

#define PANEL 8

/* -3..3: sums of up to a million products are exact in any order, so results can be compared for equality. */
static float *small_integers(int64_t count)
{
    float *values = blank_floats(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(random_bits() % 7) - 3.0f;
    return values;
}

static int64_t padded(int64_t out)
{
    return (out + PANEL - 1) / PANEL * PANEL;
}

/* Taps first, first + step, ... below taps (step < 0: above -1) of w [out, in, taps]; returns the end of the panels. */
static float *pack(const float *w, int64_t out, int64_t in, int64_t taps, int64_t first, int64_t step, float *panels)
{
    for (int64_t n = 0; n < padded(out); n += PANEL) {
        for (int64_t tap = first; tap >= 0 && tap < taps; tap += step) {
            for (int64_t c = 0; c < in; c++) {
                for (int64_t j = n; j < n + PANEL; j++)
                    *panels++ = j < out ? w[(j * in + c) * taps + tap] : 0.0f;
            }
        }
    }
    return panels;
}

static void expect_equal(const float *got, const float *expected, int64_t count, const char *what, int64_t detail)
{
    for (int64_t i = 0; i < count; i++) {
        if (got[i] != expected[i]) {
            CHECK(got[i] == expected[i], "%s %lld, element %lld: got %g, expected %g", what, (long long)detail,
                  (long long)i, (double)got[i], (double)expected[i]);
            return;
        }
    }
}

static void plain_conv1d(const h3k_conv1d_args *a, const float *w, int64_t rows, float *y)
{
    for (int64_t t = 0; t < rows; t++) {
        for (int64_t o = 0; o < a->out; o++) {
            float sum = a->bias == NULL ? 0.0f : a->bias[o];
            for (int64_t tap = 0; tap < a->kernel; tap++) {
                int64_t from = t * a->stride + tap * a->dilation - a->pad_left;
                for (int64_t c = 0; from >= 0 && from < a->time && c < a->in; c++)
                    sum += w[(o * a->in + c) * a->kernel + tap] * a->x[from * a->in + c];
            }
            y[t * a->out + o] = sum;
        }
    }
}

static void check_conv1d(h3k_conv1d_args a, int32_t threads)
{
    int64_t reach = a.time + a.pad_left + a.pad_right - a.dilation * (a.kernel - 1) - 1;
    if (reach < 0)
        return;
    int64_t rows = reach / a.stride + 1;
    float *x = small_integers(a.time * a.in), *w = small_integers(a.out * a.in * a.kernel), *bias = small_integers(a.out);
    float *panels = blank_floats(padded(a.out) * a.in * a.kernel), *y = blank_floats(rows * a.out);
    float *expected = blank_floats(rows * a.out);
    pack(w, a.out, a.in, a.kernel, 0, 1, panels);
    a.call = open_call(sizeof a, threads, h3k_conv_scratch_bytes(threads));
    a.x = x, a.panels = panels, a.bias = a.kernel % 2 ? bias : NULL, a.y = y;
    plain_conv1d(&a, w, rows, expected);
    CHECK(h3k_conv1d(&a) == H3K_OK, "kernel %lld", (long long)a.kernel);
    expect_equal(y, expected, rows * a.out, "conv1d kernel", a.kernel);
    close_call(&a.call);
    free(x), free(w), free(bias), free(panels), free(y), free(expected);
}

static void check_conv_transpose1d(h3k_conv_transpose1d_args a, int32_t threads)
{
    int64_t rows = (a.time - 1) * a.stride - 2 * a.padding + a.kernel;
    if (rows < 1)
        return;
    float *x = small_integers(a.time * a.in), *w = small_integers(a.out * a.in * a.kernel), *bias = small_integers(a.out);
    float *panels = blank_floats(padded(a.out) * a.in * a.kernel), *y = blank_floats(rows * a.out);
    float *expected = blank_floats(rows * a.out), *end = panels;
    for (int64_t phase = 0; phase < a.stride && phase < a.kernel; phase++)
        end = pack(w, a.out, a.in, a.kernel, phase + (a.kernel - 1 - phase) / a.stride * a.stride, -a.stride, end);
    a.call = open_call(sizeof a, threads, h3k_conv_scratch_bytes(threads));
    a.x = x, a.panels = panels, a.bias = bias, a.y = y;
    for (int64_t i = 0; i < rows * a.out; i++)
        expected[i] = bias[i % a.out];
    for (int64_t t = 0; t < a.time; t++) {
        for (int64_t tap = 0; tap < a.kernel; tap++) {
            int64_t to = t * a.stride + tap - a.padding;
            for (int64_t i = 0; to >= 0 && to < rows && i < a.out * a.in; i++)
                expected[to * a.out + i / a.in] += w[i * a.kernel + tap] * x[t * a.in + i % a.in];
        }
    }
    CHECK(h3k_conv_transpose1d(&a) == H3K_OK, "kernel %lld", (long long)a.kernel);
    expect_equal(y, expected, rows * a.out, "conv_transpose1d kernel", a.kernel);
    close_call(&a.call);
    free(x), free(w), free(bias), free(panels), free(y), free(expected);
}

static int64_t mirror(int64_t i, int64_t n)
{
    i = i < 0 ? -i : i;
    return i >= n ? 2 * n - 2 - i : i;
}

static int64_t side(const h3k_conv3d_args *a, int64_t size)
{
    return (size + a->pad_before + a->pad_after - a->kernel) / a->stride + 1;
}

static float plain_conv3d_at(const h3k_conv3d_args *a, const float *w, int64_t t, int64_t i, int64_t j)
{
    int64_t taps = a->kernel_t * a->kernel * a->kernel;
    float sum = 0.0f;
    for (int64_t tap = 0; tap < taps; tap++) {
        int64_t frame = t * a->stride_t + tap / (a->kernel * a->kernel) - a->history;
        int64_t row = mirror(i * a->stride + tap / a->kernel % a->kernel - a->pad_before, a->height);
        int64_t column = mirror(j * a->stride + tap % a->kernel - a->pad_before, a->width);
        const float *frames = frame < 0 ? a->past : a->x;
        int64_t at = ((frame < 0 ? frame + a->history : frame) * a->height + row) * a->width + column;
        for (int64_t c = 0; frames != NULL && c < a->in; c++)
            sum += w[c * taps + tap] * frames[at * a->in + c];
    }
    return sum;
}

static void check_conv3d(h3k_conv3d_args a, int32_t threads, int with_past)
{
    int64_t taps = a.kernel_t * a.kernel * a.kernel, picture = a.height * a.width * a.in;
    int64_t frames = (a.history + a.frames - a.kernel_t) / a.stride_t + 1;
    int64_t height = side(&a, a.height), width = side(&a, a.width), rows = frames * height * width;
    float *x = small_integers(a.frames * picture), *past = small_integers(a.history * picture);
    float *w = small_integers(a.out * a.in * taps), *bias = small_integers(a.out);
    float *panels = blank_floats(padded(a.out) * a.in * taps), *y = blank_floats(rows * a.out);
    float *expected = blank_floats(rows * a.out);
    pack(w, a.out, a.in, taps, 0, 1, panels);
    a.call = open_call(sizeof a, threads, h3k_conv_scratch_bytes(threads));
    a.x = x, a.past = with_past && a.history > 0 ? past : NULL, a.panels = panels, a.bias = bias, a.y = y;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t o = 0; o < a.out; o++)
            expected[r * a.out + o] = bias[o] + plain_conv3d_at(&a, w + o * a.in * taps, r / (height * width),
                                                                r / width % height, r % width);
    }
    CHECK(h3k_conv3d(&a) == H3K_OK, "height %lld", (long long)a.height);
    expect_equal(y, expected, rows * a.out, "conv3d height", a.height);
    close_call(&a.call);
    free(x), free(past), free(w), free(bias), free(panels), free(y), free(expected);
}

static void check_shapes(int32_t threads)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {7, 5, 3}, {70, 17, 9}, {4, 260, 130}}; /* time, in, out */
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        int64_t time = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
        for (int64_t kernel = 1; kernel <= 11; kernel += 1 + (s > 1) * 4) {
            for (int64_t step = 1; step <= 5; step += 2) {
                check_conv1d((h3k_conv1d_args){.time = time, .in = in, .out = out, .kernel = kernel, .stride = step,
                                               .dilation = 10 - step, .pad_left = (kernel - 1) * 5, .pad_right = 2},
                             threads);
                check_conv1d((h3k_conv1d_args){.time = time, .in = in, .out = out, .kernel = kernel, .stride = step,
                                               .dilation = 1, .pad_left = kernel / 2, .pad_right = kernel - 1},
                             threads);
                check_conv_transpose1d((h3k_conv_transpose1d_args){.time = time, .in = in, .out = out,
                                       .kernel = kernel, .stride = step, .padding = kernel / 3}, threads);
            }
        }
    }
    static const int64_t sides[][2] = {{2, 3}, {5, 2}, {3, 33}, {8, 8}};
    for (size_t s = 0; s < 2 * sizeof sides / sizeof *sides; s++) {
        h3k_conv3d_args plain = {.frames = 1 + (int64_t)s % 3, .height = sides[s / 2][0], .width = sides[s / 2][1],
                                 .in = 3, .out = 9, .kernel_t = 3, .kernel = 3, .stride_t = 1, .stride = 1,
                                 .pad_before = 1, .pad_after = 1, .history = 2};
        h3k_conv3d_args down = plain, point = plain;
        down.stride = down.stride_t = 2, down.pad_before = 0;
        point.kernel = point.kernel_t = 1, point.pad_before = point.pad_after = point.history = 0, point.in = 270;
        check_conv3d(plain, threads, s % 2);
        check_conv3d(down, threads, s % 2);
        check_conv3d(point, threads, 0);
    }
}

static void check_refusals(void)
{
    float x[8] = {0}, panels[64] = {0}, y[8];
    int32_t stop = 1;
    h3k_conv1d_args good = {.x = x, .panels = panels, .y = y, .time = 8, .in = 1, .out = 1, .kernel = 3, .stride = 1,
                            .dilation = 1, .pad_left = 1, .pad_right = 1};
    good.call = open_call(sizeof good, 1, h3k_conv_scratch_bytes(1));
    h3k_conv1d_args bad = good;
    CHECK(h3k_conv1d(&good) == H3K_OK, "a good call");
    bad.call.scratch_bytes--;
    CHECK(h3k_conv1d(&bad) == H3K_BAD_SCRATCH, "scratch one byte short");
    bad = good, bad.call.args_bytes--;
    CHECK(h3k_conv1d(&bad) == H3K_BAD_ARGUMENT, "a struct of another size");
    bad = good, bad.kernel = 11;
    CHECK(h3k_conv1d(&bad) == H3K_BAD_ARGUMENT, "a kernel wider than the padded input");
    bad = good, bad.x = NULL;
    CHECK(h3k_conv1d(&bad) == H3K_BAD_ARGUMENT, "no input");
    bad = good, bad.call.cancel = &stop;
    CHECK(h3k_conv1d(&bad) == H3K_CANCELLED, "a set flag");
    CHECK(h3k_conv1d(NULL) == H3K_BAD_ARGUMENT, "no arguments");
    close_call(&good.call);
    h3k_conv3d_args flat = {.x = x, .panels = panels, .y = y, .frames = 1, .height = 1, .width = 8, .in = 1, .out = 1,
                            .kernel_t = 1, .kernel = 3, .stride_t = 1, .stride = 1, .pad_before = 1, .pad_after = 1};
    flat.call = open_call(sizeof flat, 1, h3k_conv_scratch_bytes(1));
    CHECK(h3k_conv3d(&flat) == H3K_BAD_ARGUMENT, "one row cannot be mirrored");
    close_call(&flat.call);
}

static void convolutions_are_right(void)
{
    check_shapes(1);
    check_shapes(3);
}

int main(void)
{
    with_every_isa(convolutions_are_right);
    check_refusals();
    return finish("test_conv");
}
