/* Convolutions, group norm and snake beyond 2^31 elements of input, output, weights and scratch.
 *
 * Tier: self-consistency, the small call being held by the tests of each kernel. Cannot catch an index that overflows
 * on the first tiles of a call alone.
 */
#include "big.h"

/* y's last rows see the last rows of x only: the small call ends as the big one does, its own first rows apart. */
static void conv1d_reaches_far(int64_t in, int64_t out)
{
    enum { GIVEN = 20, KERNEL = 3, SEEN = 12 };
    int64_t time = MANY / (in > out ? in : out) + GIVEN;
    float *x = some_floats(GIVEN * in), *panels = some_floats(KERNEL * in * out), *y = sparse_floats(GIVEN * out);
    h3k_conv1d_args small = {.call = sparse_call(sizeof small, h3k_conv_scratch_bytes(1)), .x = x, .panels = panels,
                             .y = y, .time = GIVEN, .in = in, .out = out, .kernel = KERNEL, .stride = 1, .dilation = 1,
                             .pad_left = 1, .pad_right = 1};
    h3k_conv1d_args big = small;
    big.x = ending_in(x, GIVEN * in, time * in), big.time = time, big.y = sparse_floats(time * out);
    CHECK(h3k_conv1d(&small) == H3K_OK && h3k_conv1d(&big) == H3K_OK, "conv1d runs");
    check_ends_match("conv1d", big.y, time * out, y, GIVEN * out, SEEN * out);
}

static void transposed_conv_reaches_far(int64_t in, int64_t out)
{
    enum { GIVEN = 20, KERNEL = 4, STRIDE = 2, SEEN = 24 };
    int64_t time = MANY / (in > STRIDE * out ? in : STRIDE * out) + GIVEN;
    float *x = some_floats(GIVEN * in), *panels = some_floats(KERNEL * in * out);
    float *y = sparse_floats(STRIDE * GIVEN * out);
    h3k_conv_transpose1d_args small = {.call = sparse_call(sizeof small, h3k_conv_scratch_bytes(1)), .x = x,
                                       .panels = panels, .y = y, .time = GIVEN, .in = in, .out = out, .kernel = KERNEL,
                                       .stride = STRIDE, .padding = 1};
    h3k_conv_transpose1d_args big = small;
    big.x = ending_in(x, GIVEN * in, time * in), big.time = time, big.y = sparse_floats(STRIDE * time * out);
    CHECK(h3k_conv_transpose1d(&small) == H3K_OK && h3k_conv_transpose1d(&big) == H3K_OK, "conv_transpose1d runs");
    check_ends_match("conv_transpose1d", big.y, STRIDE * time * out, y, STRIDE * GIVEN * out, SEEN * out);
}

static void conv3d_reaches_far(int64_t in, int64_t out)
{
    enum { GIVEN = 6, SIDE = 4, AREA = SIDE * SIDE, KERNEL = 3, HISTORY = 2, SEEN = 3 };
    int64_t frames = MANY / (AREA * (in > out ? in : out)) + GIVEN;
    float *x = some_floats(GIVEN * AREA * in), *panels = some_floats(KERNEL * KERNEL * KERNEL * in * out);
    float *past = some_floats(HISTORY * AREA * in), *y = sparse_floats(GIVEN * AREA * out);
    h3k_conv3d_args small = {.call = sparse_call(sizeof small, h3k_conv_scratch_bytes(1)), .x = x, .past = past,
                             .panels = panels, .y = y, .frames = GIVEN, .height = SIDE, .width = SIDE, .in = in,
                             .out = out, .kernel_t = KERNEL, .kernel = KERNEL, .stride_t = 1, .stride = 1,
                             .pad_before = 1, .pad_after = 1, .history = HISTORY};
    h3k_conv3d_args big = small;
    big.x = ending_in(x, GIVEN * AREA * in, frames * AREA * in);
    big.frames = frames, big.y = sparse_floats(frames * AREA * out);
    CHECK(h3k_conv3d(&small) == H3K_OK && h3k_conv3d(&big) == H3K_OK, "conv3d runs");
    check_ends_match("conv3d", big.y, frames * AREA * out, y, GIVEN * AREA * out, SEEN * AREA * out);
}

static void panels_beyond_4_gib(void)
{
    enum { TIME = 2, IN = 1024, GIVEN = 128 };
    int64_t out = MANY / (2 * IN) + GIVEN;
    float *x = some_floats(TIME * IN), *panels = some_floats(IN * GIVEN), y[TIME * GIVEN];
    h3k_conv1d_args small = {.call = sparse_call(sizeof small, h3k_conv_scratch_bytes(1)), .x = x, .panels = panels,
                             .y = y, .time = TIME, .in = IN, .out = GIVEN, .kernel = 1, .stride = 1, .dilation = 1};
    h3k_conv1d_args big = small;
    big.panels = ending_in(panels, IN * GIVEN, IN * out), big.out = out, big.y = sparse_floats(TIME * out);
    CHECK(h3k_conv1d(&small) == H3K_OK && h3k_conv1d(&big) == H3K_OK, "conv1d runs");
    check_ends_match("conv1d, panels", big.y, TIME * out, y, TIME * GIVEN, GIVEN);
}

static void convolutions_reach_far(void)
{
    conv1d_reaches_far(1024, 8), conv1d_reaches_far(8, 1024), conv1d_reaches_far(128, 8);
    transposed_conv_reaches_far(1024, 8), transposed_conv_reaches_far(8, 1024);
    conv3d_reaches_far(1024, 8), conv3d_reaches_far(8, 1024);
    panels_beyond_4_gib();
}

/* Its scratch of sums is beyond 2^32 bytes too. */
static void group_norm_reaches_far(void)
{
    enum { GIVEN = 3, POSITIONS = 2, CHANNELS = 4096, SIZE = POSITIONS * CHANNELS };
    int64_t frames = MANY / SIZE + GIVEN;
    float *x = some_floats(GIVEN * SIZE), *weight = some_floats(CHANNELS), *y = sparse_floats(GIVEN * SIZE);
    int64_t scratch_bytes = h3k_group_norm_scratch_bytes(frames, POSITIONS, CHANNELS);
    h3k_group_norm_silu_args small = {.call = sparse_call(sizeof small, scratch_bytes), .x = x, .weight = weight,
                                      .bias = weight, .y = y, .frames = GIVEN, .positions = POSITIONS,
                                      .channels = CHANNELS, .groups = 32, .eps = 1e-6};
    h3k_group_norm_silu_args big = small;
    big.x = ending_in(x, GIVEN * SIZE, frames * SIZE), big.y = sparse_floats(frames * SIZE), big.frames = frames;
    CHECK(h3k_group_norm_silu(&small) == H3K_OK && h3k_group_norm_silu(&big) == H3K_OK, "group_norm_silu runs");
    check_ends_match("group_norm_silu", big.y, frames * SIZE, y, GIVEN * SIZE, GIVEN * SIZE);
}

static void snakes_reach_far(void)
{
    enum { GIVEN = 100, CHANNELS = 64, SEEN = 60 };
    int64_t time = MANY / CHANNELS + GIVEN, scratch_bytes = h3k_snake_scratch_bytes(CHANNELS, 1);
    float *x = some_floats(GIVEN * CHANNELS), *alpha = some_floats(CHANNELS), *taps = some_floats(12);
    float *y = sparse_floats(GIVEN * CHANNELS), *big_y = sparse_floats(time * CHANNELS);
    float *big_x = ending_in(x, GIVEN * CHANNELS, time * CHANNELS);
    h3k_snake_args small = {.call = sparse_call(sizeof small, scratch_bytes), .x = x, .alpha = alpha, .y = y,
                            .time = GIVEN, .channels = CHANNELS};
    h3k_snake_args big = small;
    big.x = big_x, big.y = big_y, big.time = time;
    CHECK(h3k_snake(&small) == H3K_OK && h3k_snake(&big) == H3K_OK, "snake runs");
    CHECK(same_bits(big_y + (time - GIVEN) * CHANNELS, y, GIVEN * CHANNELS), "snake: the end");
    h3k_anti_aliased_snake_args small_anti = {.call = sparse_call(sizeof small_anti, scratch_bytes), .x = x,
                                              .log_alpha = alpha, .log_beta = alpha, .taps = taps, .y = y,
                                              .time = GIVEN, .channels = CHANNELS};
    h3k_anti_aliased_snake_args big_anti = small_anti;
    big_anti.x = big_x, big_anti.y = big_y, big_anti.time = time;
    CHECK(h3k_anti_aliased_snake(&small_anti) == H3K_OK && h3k_anti_aliased_snake(&big_anti) == H3K_OK, "it runs");
    check_ends_match("anti_aliased_snake", big_y, time * CHANNELS, y, GIVEN * CHANNELS, SEEN * CHANNELS);
}

int main(void)
{
    with_every_isa(convolutions_reach_far);
    group_norm_reaches_far();
    snakes_reach_far();
    return finish_big("big_decoder");
}
