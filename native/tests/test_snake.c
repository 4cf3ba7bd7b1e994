/* The snakes against their equations in float64, and the sine they use against the library's.
 *
 * Tier: independent transcription. Tolerance 2e-5 for outputs of order ten: the sine's argument is a rounded float32.
 */
#include "../src/sinf.h"
#include "check.h"

/* Distance of a from the exact value, in units of the last place of a float32 near it. */
static double error_ulp(float got, double exact)
{
    double size = fabs(exact) < 0x1p-126 ? 0x1p-126 : fabs(exact);
    return fabs((double)got - exact) / ldexp(1.0, ilogb(size) - 23);
}

static void walk_sine(void)
{
    double worst = 0.0;
    float worst_at = 0.0f;
    for (int exponent = -30; exponent < 22; exponent++) {
        for (int i = 0; i < 1000; i++) {
            float x = ldexpf(1.0f + (float)(random_bits() >> 8) / 16777216.0f, exponent);
            if (x > H3K_SIN_LIMIT)
                continue;
            double error = error_ulp(fabsf(h3k_sin_without_sign(x)), fabs(sin((double)x)));
            if (error > worst)
                worst = error, worst_at = x;
        }
    }
    for (int n = 1; n <= 900000; n += 1 + n / 100) { /* next to multiples of pi, where all digits cancel */
        float x = (float)(n * 3.14159265358979323846);
        double error = error_ulp(fabsf(h3k_sin_without_sign(x)), fabs(sin((double)x)));
        if (error > worst)
            worst = error, worst_at = x;
    }
    CHECK(worst <= 0.51, "%g ulp at %g", worst, (double)worst_at);
    CHECK(h3k_sin_without_sign(0.0f) == 0.0f, "zero");
    CHECK(isnan(h3k_sin_without_sign(NAN)), "NaN");
}

static double snake_at(double x, double frequency, double magnitude)
{
    double s = sin(frequency * x);
    return x + s * s / (magnitude + 1e-9);
}

static int64_t clamp(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i < n ? i : n - 1;
}

/* Element i of channel c of the upsampled and bent signal, from the transposed convolution it stands for. */
static double upsampled(const h3k_anti_aliased_snake_args *a, int64_t i, int64_t c)
{
    double sum = 0.0;
    for (int64_t j = -5; j < a->time + 5; j++) { /* tap of the padded source row j in output i: i + 5 - 2j */
        int64_t tap = i + 5 - 2 * j;
        if (tap >= 0 && tap < 12)
            sum += 2.0 * (double)a->taps[tap] * (double)a->x[clamp(j, a->time) * a->channels + c];
    }
    return snake_at(sum, exp((double)a->log_alpha[c]), exp((double)a->log_beta[c]));
}

static void check_values(const h3k_anti_aliased_snake_args *a)
{
    int64_t count = a->time * a->channels;
    for (int64_t i = 0; i < count; i += 1 + count / 2000) {
        int64_t m = i / a->channels, c = i % a->channels;
        double expected = 0.0;
        for (int64_t k = 0; k < 12; k++)
            expected += (double)a->taps[k] * upsampled(a, clamp(2 * m + k - 5, 2 * a->time), c);
        CHECK(fabs((double)a->y[i] - expected) <= 2e-5, "%lld rows, element %lld: got %g, expected %g",
              (long long)a->time, (long long)i, (double)a->y[i], expected);
    }
}

static void check_anti_aliased(int64_t time, int64_t channels, int32_t threads)
{
    float *x = random_floats(time * channels), *taps = random_floats(12);
    float *log_alpha = random_floats(channels), *log_beta = random_floats(channels);
    float *alone = blank_floats(time * channels), *together = blank_floats(time * channels);
    for (int i = 0; i < 12; i++)
        taps[i] *= 0.5f;
    h3k_anti_aliased_snake_args a = {.x = x, .log_alpha = log_alpha, .log_beta = log_beta, .taps = taps, .y = alone,
                                     .time = time, .channels = channels};
    a.call = open_call(sizeof a, 1, h3k_snake_scratch_bytes(channels, 1));
    CHECK(h3k_anti_aliased_snake(&a) == H3K_OK, "%lld rows", (long long)time);
    close_call(&a.call);
    check_values(&a);
    a.call = open_call(sizeof a, threads, h3k_snake_scratch_bytes(channels, threads));
    a.y = together;
    CHECK(h3k_anti_aliased_snake(&a) == H3K_OK, "%lld rows, threads", (long long)time);
    CHECK(same_bits(alone, together, time * channels), "threads change the bits");
    close_call(&a.call);
    free(x), free(taps), free(log_alpha), free(log_beta), free(alone), free(together);
}

static void check_snake(int64_t time, int64_t channels, int32_t threads)
{
    float *x = random_floats(time * channels), *alpha = random_floats(channels), *y = blank_floats(time * channels);
    for (int64_t c = 0; c < channels; c++)
        alpha[c] += 1.5f;
    x[0] = 1e8f; /* beyond the fast sine: the block takes the slow one for it */
    h3k_snake_args a = {.x = x, .alpha = alpha, .y = y, .time = time, .channels = channels};
    a.call = open_call(sizeof a, threads, h3k_snake_scratch_bytes(channels, threads));
    CHECK(h3k_snake(&a) == H3K_OK, "%lld rows", (long long)time);
    for (int64_t i = 0; i < time * channels; i++) {
        double expected = snake_at((double)x[i], (double)alpha[i % channels], (double)alpha[i % channels]);
        CHECK(fabs((double)y[i] - expected) <= (i == 0 ? 8.0 : 1e-6), "element %lld: got %g, expected %g",
              (long long)i, (double)y[i], expected);
    }
    a.y = x;
    CHECK(h3k_snake(&a) == H3K_OK, "in place");
    CHECK(same_bits(x, y, time * channels), "in place changes the bits");
    close_call(&a.call);
    free(x), free(alpha), free(y);
}

static void check_special_values(void)
{
    float x[4] = {NAN, INFINITY, 0.0f, 1.0f}, alpha[4] = {1, 1, 1, 0}, y[4];
    int32_t stop = 1;
    h3k_snake_args a = {.x = x, .alpha = alpha, .y = y, .time = 1, .channels = 4};
    a.call = open_call(sizeof a, 1, h3k_snake_scratch_bytes(4, 1));
    CHECK(h3k_snake(&a) == H3K_OK, "special values");
    CHECK(isnan(y[0]) && isnan(y[1]) && y[2] == 0.0f && y[3] == 1.0f, "got %g %g %g %g", (double)y[0], (double)y[1],
          (double)y[2], (double)y[3]);
    a.call.cancel = &stop;
    CHECK(h3k_snake(&a) == H3K_CANCELLED, "a set flag");
    a.call.cancel = NULL;
    a.call.scratch_bytes--;
    CHECK(h3k_snake(&a) == H3K_BAD_SCRATCH, "scratch one byte short");
    a.call.scratch_bytes++;
    a.channels = 0;
    CHECK(h3k_snake(&a) == H3K_BAD_ARGUMENT, "no channels");
    close_call(&a.call);
}

int main(void)
{
    static const int64_t shapes[][2] = {{1, 1}, {2, 3}, {5, 8}, {33, 7}, {700, 6}, {70, 130}};
    walk_sine();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_anti_aliased(shapes[i][0], shapes[i][1], 4);
        check_snake(shapes[i][0], shapes[i][1], 4);
    }
    check_special_values();
    return finish("test_snake");
}
