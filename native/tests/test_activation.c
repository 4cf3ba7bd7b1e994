/* The exponential over its whole range against libm's in float64, and swiglu with every instruction set.
 *
 * Tier: executed reference (libm).
 */
#include "check.h"
#include "expf.h"

static void exponential_is_within_two_ulp(void)
{
    double worst = 0, at = 0;
    for (int64_t i = 0; i <= 500000; i++) {
        float x = -104.0f + (float)i * 3.86e-4f;
        double exact = exp((double)x), ulp = ldexp(1.0, exact < 0x1p-126 ? -149 : ilogb(exact) - 23);
        double error = exact < (double)3.4028235e38f ? fabs((double)h3k_expf(x) - exact) / ulp : 0;
        if (error > worst)
            worst = error, at = (double)x;
    }
    CHECK(worst <= 2.0, "error %g ulp at %g", worst, at);
    printf("exponential: largest error %.3f ulp at %.4f\n", worst, at);
}

static void exponential_has_its_ends(void)
{
    CHECK(h3k_expf(0.0f) == 1.0f && h3k_expf(-0.0f) == 1.0f, "exp(0) is 1");
    CHECK(h3k_expf(INFINITY) == INFINITY && h3k_expf(1e30f) == INFINITY && h3k_expf(88.8f) == INFINITY, "overflow");
    CHECK(h3k_expf(-INFINITY) == 0.0f && h3k_expf(-1e30f) == 0.0f && h3k_expf(-105.0f) == 0.0f, "underflow");
    CHECK(h3k_expf(-100.0f) > 0.0f && h3k_expf(-100.0f) < 0x1p-126f, "denormals are kept");
    CHECK(isnan(h3k_expf(NAN)) && isnan(h3k_expf(-NAN)), "NaN stays");
}

static void gates_have_their_ends(void)
{
    CHECK(h3k_silu(200.0f) == 200.0f && h3k_silu(-200.0f) == 0.0f && isnan(h3k_silu(NAN)), "silu");
    CHECK(h3k_gelu_tanh(1e20f) == 1e20f && h3k_gelu_tanh(-1e20f) == 0.0f && isnan(h3k_gelu_tanh(NAN)), "gelu");
}

static void swiglu_multiplies_the_gate(void)
{
    enum { COUNT = 40000 };
    float *gate = random_floats(COUNT), *value = random_floats(COUNT), *y = blank_floats(COUNT);
    double *expected = get_memory(COUNT * sizeof *expected);
    for (int i = 0; i < COUNT; i++) {
        gate[i] *= 9.0f;
        expected[i] = (double)gate[i] / (1 + exp(-(double)gate[i])) * (double)value[i];
    }
    h3k_swiglu_args a = {.call = open_call(sizeof a, 3, 0), .gate = gate, .value = value, .y = y, .count = COUNT};
    CHECK(h3k_swiglu(&a) == H3K_OK && relative_error(y, expected, COUNT) < 2e-7, "swiglu is close to float64");
    a.y = gate;
    CHECK(h3k_swiglu(&a) == H3K_OK && same_bits(gate, y, COUNT), "swiglu in place gives the same");
    close_call(&a.call);
    free(gate), free(value), free(y), free(expected);
}

/* Gates from -87 to 103, value 1: below 2 ulp of the exponential, one division. */
static void silu_is_close_over_its_range(void)
{
    enum { COUNT = 190001 };
    float *gate = blank_floats(COUNT), *value = blank_floats(COUNT), *y = blank_floats(COUNT);
    double worst = 0;
    for (int i = 0; i < COUNT; i++)
        gate[i] = -87.0f + (float)i * 1e-3f, value[i] = 1.0f;
    h3k_swiglu_args a = {.call = {.args_bytes = sizeof a}, .gate = gate, .value = value, .y = y, .count = COUNT};
    CHECK(h3k_swiglu(&a) == H3K_OK, "swiglu runs");
    for (int i = 0; i < COUNT; i++) {
        double exact = (double)gate[i] / (1 + exp(-(double)gate[i]));
        worst = fmax(worst, fabs((double)y[i] - exact) / fmax(fabs(exact), 1e-37));
    }
    CHECK(worst < 3e-7, "silu: relative error %g", worst);
    free(gate), free(value), free(y);
}

static void swiglu_has_its_ends(void)
{
    const float gate[8] = {200.0f, -200.0f, -1e30f, NAN, INFINITY, 1.0f, 0.0f, -0.0f};
    float value[8] = {1, 1, 1, 1, 1, NAN, 1, 1}, y[8];
    h3k_swiglu_args a = {.call = {.args_bytes = sizeof a}, .gate = gate, .value = value, .y = y, .count = 8};
    CHECK(h3k_swiglu(&a) == H3K_OK, "swiglu runs");
    CHECK(y[0] == 200.0f && fabsf(y[1]) < 1e-36f && fabsf(y[2]) < 1e-36f && y[4] == INFINITY, "large gates");
    CHECK(isnan(y[3]) && isnan(y[5]) && y[6] == 0.0f && y[7] == 0.0f, "NaN stays, zero is zero");
}

static void swiglu_is_right(void)
{
    swiglu_multiplies_the_gate();
    silu_is_close_over_its_range();
    swiglu_has_its_ends();
}

int main(void)
{
    exponential_is_within_two_ulp();
    exponential_has_its_ends();
    gates_have_their_ends();
    with_every_isa(swiglu_is_right);
    return finish("activation");
}
