/* Group norm with SiLU against its equation in float64.
 *
 * Tier: independent transcription. Tolerance 4e-6 absolute for outputs of order one: one float32 multiply-add of values up
 * to 3 and a sigmoid within 2 ulp.
 */
#include "check.h"

static double plain(const h3k_group_norm_silu_args *a, int64_t frame, int64_t position, int64_t channel)
{
    int64_t width = a->channels / a->groups, c0 = channel / width * width;
    const float *x = a->x + frame * a->positions * a->channels;
    double mean = 0.0, variance = 0.0, count = (double)(width * a->positions);
    for (int64_t i = 0; i < width * a->positions; i++)
        mean += (double)x[i / width * a->channels + c0 + i % width] / count;
    for (int64_t i = 0; i < width * a->positions; i++) {
        double away = (double)x[i / width * a->channels + c0 + i % width] - mean;
        variance += away * away / count;
    }
    double value = ((double)x[position * a->channels + channel] - mean) / sqrt(variance + a->eps);
    value = value * (double)a->weight[channel] + (double)a->bias[channel];
    return value / (1.0 + exp(-value));
}

static void run(h3k_group_norm_silu_args *a, int32_t threads)
{
    a->call = open_call(sizeof *a, threads, h3k_group_norm_scratch_bytes(a->frames, a->positions, a->channels));
    CHECK(h3k_group_norm_silu(a) == H3K_OK, "channels %lld", (long long)a->channels);
    close_call(&a->call);
}

/* x = scale * fractions + offset */
static void check(h3k_group_norm_silu_args a, float scale, float offset, double tolerance, int32_t threads)
{
    int64_t count = a.frames * a.positions * a.channels;
    float *x = random_floats(count), *weight = random_floats(a.channels), *bias = random_floats(a.channels);
    float *alone = blank_floats(count), *together = blank_floats(count);
    for (int64_t i = 0; i < count; i++)
        x[i] = scale * x[i] + offset;
    a.x = x, a.weight = weight, a.bias = bias, a.eps = 1e-6;
    a.y = alone;
    run(&a, 1);
    for (int64_t i = 0; i < count; i += 1 + count / 500) {
        int64_t frame = i / (a.positions * a.channels), position = i / a.channels % a.positions;
        double expected = plain(&a, frame, position, i % a.channels);
        CHECK(fabs((double)alone[i] - expected) <= tolerance, "element %lld: got %g, expected %g", (long long)i,
              (double)alone[i], expected);
    }
    a.y = together;
    run(&a, threads);
    CHECK(same_bits(alone, together, count), "threads change the bits");
    a.y = x;
    run(&a, threads);
    CHECK(same_bits(alone, x, count), "in place changes the bits");
    free(x), free(weight), free(bias), free(alone), free(together);
}

/* NaN spoils the group it is in, of its frame, and nothing else; a constant group becomes silu(bias). */
static void check_special_values(void)
{
    float x[2 * 3 * 4], weight[4] = {1, 1, 1, 1}, bias[4] = {0.5f, -1, 2, 0}, y[2 * 3 * 4];
    for (int i = 0; i < 24; i++)
        x[i] = 7.0f;
    x[5] = NAN; /* frame 0, channel 1 */
    h3k_group_norm_silu_args a = {.x = x, .weight = weight, .bias = bias, .y = y, .frames = 2, .positions = 3,
                                  .channels = 4, .groups = 2, .eps = 1e-6};
    run(&a, 1);
    for (int i = 0; i < 24; i++) {
        double b = (double)bias[i % 4], expected = b / (1.0 + exp(-b));
        if (i < 12 && i % 4 < 2)
            CHECK(isnan(y[i]), "element %d is %g", i, (double)y[i]);
        else
            CHECK(fabs((double)y[i] - expected) < 1e-6, "element %d: got %g, expected %g", i, (double)y[i], expected);
    }
}

static void check_refusals(void)
{
    float x[6] = {0}, y[6];
    int32_t stop = 1;
    h3k_group_norm_silu_args a = {.x = x, .weight = x, .bias = x, .y = y, .frames = 1, .positions = 1, .channels = 6,
                                  .groups = 4, .eps = 1e-6};
    a.call = open_call(sizeof a, 1, h3k_group_norm_scratch_bytes(1, 1, 6));
    CHECK(h3k_group_norm_silu(&a) == H3K_BAD_ARGUMENT, "six channels in four groups");
    a.groups = 3;
    a.call.scratch_bytes--;
    CHECK(h3k_group_norm_silu(&a) == H3K_BAD_SCRATCH, "scratch one byte short");
    a.call.scratch_bytes++;
    a.call.cancel = &stop;
    CHECK(h3k_group_norm_silu(&a) == H3K_CANCELLED, "a set flag");
    close_call(&a.call);
}

int main(void)
{
    check((h3k_group_norm_silu_args){.frames = 1, .positions = 1, .channels = 4, .groups = 2}, 1, 0, 4e-6, 4);
    check((h3k_group_norm_silu_args){.frames = 3, .positions = 35, .channels = 12, .groups = 3}, 5, 2, 4e-6, 4);
    check((h3k_group_norm_silu_args){.frames = 2, .positions = 4097, .channels = 7, .groups = 7}, 1, 0, 4e-6, 4);
    /* A mean of 100 deviations costs the float32 shift seven bits. */
    check((h3k_group_norm_silu_args){.frames = 1, .positions = 64, .channels = 6, .groups = 1}, 1, 58, 2e-5, 4);
    check_special_values();
    check_refusals();
    return finish("test_group_norm");
}
