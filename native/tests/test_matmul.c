/* The products against float64, and what must never change a bit: threads, tiles, addresses.
 *
 * Tier: independent transcription of the equation. Says nothing about speed.
 */
#include "weights.h"

/* Error allowed, as a share of what rounding can see: the sum of |x w| and |bias| (an L2 ratio would fail on a single sum
 * that happens to cancel). 256 terms in a run: the expected growth is sqrt(256) roundings of 6e-8. */
#define TOLERANCE 1e-6

typedef struct {
    format_id format;
    int64_t m, n, k;
    float *x, *bias, *bias_value;
    uint8_t *w, *w_value;
} problem;

static problem make_problem(format_id format, int64_t m, int64_t n, int64_t k)
{
    return (problem){format, m, n, k, random_floats(m * k), random_floats(n), random_floats(n),
                     random_weights(format, n, k), random_weights(format, n, k)};
}

static void free_problem(problem *p)
{
    free(p->x), free(p->bias), free(p->bias_value), free(p->w), free(p->w_value);
}

static h3k_status run(const problem *p, int32_t activation, int32_t threads, float *y, int64_t ldy)
{
    h3k_matmul_args a = {.x = p->x, .w = p->w, .bias = p->bias, .y = y, .m = p->m, .n = p->n, .k = p->k, .ldy = ldy,
                         .format = (int32_t)p->format, .activation = activation};
    if (activation == H3K_ACTIVATION_SWIGLU) {
        a.w_value = p->w_value;
        a.bias_value = p->bias_value;
    }
    a.call = open_call(sizeof a, threads, h3k_matmul_scratch_bytes(threads));
    h3k_status status = h3k_matmul(&a);
    close_call(&a.call);
    return status;
}

typedef struct {
    double value, magnitude; /* the sum, and the sum of absolute terms */
} sum;

/* Both weights element by element: w, then w_value. */
static double *expanded(const problem *p)
{
    double *w = get_memory((size_t)(2 * p->n * p->k) * sizeof *w);
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t c = 0; c < p->k; c++) {
            w[j * p->k + c] = weight_value(p->format, p->w, p->k, j, c);
            w[(p->n + j) * p->k + c] = weight_value(p->format, p->w_value, p->k, j, c);
        }
    return w;
}

static sum dot(const problem *p, const double *w, const float *bias, int64_t i, int64_t j)
{
    sum total = {(double)bias[j], fabs((double)bias[j])};
    for (int64_t c = 0; c < p->k; c++) {
        double term = (double)p->x[i * p->k + c] * w[j * p->k + c];
        total.value += term;
        total.magnitude += fabs(term);
    }
    return total;
}

/* The slopes of silu and gelu stay below 1.13, so their error is at most that of the sum times 1.13. */
static sum expected_output(const problem *p, const double *w, int32_t activation, int64_t i, int64_t j)
{
    sum s = dot(p, w, p->bias, i, j), v;
    double silu = s.value / (1 + exp(-s.value));
    switch (activation) {
    case H3K_ACTIVATION_SILU:
        return (sum){silu, 1.13 * s.magnitude};
    case H3K_ACTIVATION_GELU_TANH:
        return (sum){0.5 * s.value * (1 + tanh(sqrt(2 / acos(-1.0)) * (s.value + 0.044715 * pow(s.value, 3)))),
                     1.13 * s.magnitude};
    case H3K_ACTIVATION_SWIGLU:
        v = dot(p, w + p->n * p->k, p->bias_value, i, j);
        return (sum){silu * v.value, 1.13 * s.magnitude * fabs(v.value) + fabs(silu) * v.magnitude};
    default:
        return s;
    }
}

static void product_is_close_to_float64(format_id format, int64_t m, int64_t n, int64_t k, int32_t activation)
{
    problem p = make_problem(format, m, n, k);
    float *y = blank_floats(m * n);
    CHECK(run(&p, activation, 2, y, n) == H3K_OK, "%s %lldx%lldx%lld runs", format_names[format], (long long)m,
          (long long)n, (long long)k);
    double worst = 0, *w = expanded(&p);
    int64_t wrong = 0;
    for (int64_t i = 0; i < m * n; i++) {
        sum expected = expected_output(&p, w, activation, i / n, i % n);
        double error = fabs((double)y[i] - expected.value) / expected.magnitude;
        worst = fmax(worst, error);
        wrong += !(error < TOLERANCE);
    }
    CHECK(wrong == 0, "%s %lldx%lldx%lld activation %d: %lld elements wrong, error up to %g", format_names[format],
          (long long)m, (long long)n, (long long)k, (int)activation, (long long)wrong, worst);
    free(y), free(w);
    free_problem(&p);
}

static void threads_and_tiles_change_no_bit(format_id format)
{
    int64_t m = 389, n = 70, k = format_elements[format] == 1 ? 300 : 512;
    problem p = make_problem(format, m, n, k);
    float *y = blank_floats(m * n), *again = blank_floats(m * n);
    run(&p, H3K_ACTIVATION_SWIGLU, 1, y, n);
    for (int32_t threads = 2; threads <= 8; threads *= 2) {
        run(&p, H3K_ACTIVATION_SWIGLU, threads, again, n);
        CHECK(same_bits(y, again, m * n), "%s: %d threads give the same bits", format_names[format], (int)threads);
    }
    int64_t counts[] = {1, 2, 3, 5, 6, 7, 191, 193};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        problem part = p;
        part.m = counts[c];
        part.x = p.x + (m - part.m) * k;
        run(&part, H3K_ACTIVATION_SWIGLU, 1, again, n);
        CHECK(same_bits(y + (m - part.m) * n, again, part.m * n), "%s: the last %lld rows alone give the same bits",
              format_names[format], (long long)part.m);
    }
    free(y), free(again);
    free_problem(&p);
}

static void weights_may_lie_anywhere(format_id format)
{
    int64_t m = 5, n = 19, k = 256, size = n * row_bytes_of(format, k);
    problem p = make_problem(format, m, n, k);
    float *y = blank_floats(m * n), *again = blank_floats(m * n);
    run(&p, H3K_ACTIVATION_NONE, 1, y, n);
    uint8_t *moved = get_memory((size_t)size + 4), *original = p.w;
    for (int offset = 1; offset < 4; offset++) {
        p.w = moved + offset;
        memcpy(p.w, original, (size_t)size);
        run(&p, H3K_ACTIVATION_NONE, 1, again, n);
        CHECK(same_bits(y, again, m * n), "%s at byte offset %d", format_names[format], offset);
    }
    p.w = original;
    free(moved), free(y), free(again);
    free_problem(&p);
}

static void rows_of_y_may_be_further_apart(void)
{
    problem p = make_problem(Q8_0, 7, 13, 64);
    float *dense = blank_floats(7 * 13), *wide = get_memory(7 * 20 * sizeof *wide);
    for (int i = 0; i < 7 * 20; i++)
        wide[i] = 77.0f;
    run(&p, H3K_ACTIVATION_NONE, 2, dense, 13);
    run(&p, H3K_ACTIVATION_NONE, 2, wide, 20);
    int fine = 1;
    for (int i = 0; i < 7; i++) {
        fine &= same_bits(dense + 13 * i, wide + 20 * i, 13);
        for (int j = 13; j < 20; j++)
            fine &= wide[20 * i + j] == 77.0f;
    }
    CHECK(fine, "a row stride of 20 writes 13 columns of each row and nothing between");
    free(dense), free(wide);
    free_problem(&p);
}

static void special_values_arrive(void)
{
    problem p = make_problem(F32, 3, 9, 40);
    float *y = blank_floats(27), *w = (float *)(void *)p.w;
    memset(p.x, 0, 120 * sizeof *p.x);
    p.x[40] = NAN;
    p.x[80] = INFINITY;
    w[0] = 1.0f;
    run(&p, H3K_ACTIVATION_NONE, 1, y, 9);
    CHECK(same_bits(y, p.bias, 9), "a row of zeros gives the bias");
    for (int j = 0; j < 9; j++)
        CHECK(isnan(y[9 + j]), "NaN reaches column %d", j);
    CHECK(isinf(y[18]) && y[18] > 0, "inf stays inf: %g", y[18]);
    for (int i = 0; i < 120; i++)
        p.x[i] = i % 2 ? 1e30f : -1e30f;
    for (int i = 0; i < 360; i++)
        w[i] = 1e-30f;
    run(&p, H3K_ACTIVATION_NONE, 1, y, 9);
    CHECK(fabs((double)y[0] - (double)p.bias[0]) < 1e-5, "large values cancel: %g", y[0] - p.bias[0]);
    free(y);
    free_problem(&p);
}

static void silu_ends_are_finite(void)
{
    float x[3] = {-200.0f, 200.0f, 0.0f}, w = 1.0f, y[3] = {0};
    h3k_matmul_args a = {.x = x, .w = &w, .y = y, .m = 3, .n = 1, .k = 1, .ldy = 1, .activation = H3K_ACTIVATION_SILU};
    a.call = open_call(sizeof a, 1, h3k_matmul_scratch_bytes(1));
    CHECK(h3k_matmul(&a) == H3K_OK && y[0] == 0 && y[1] == 200 && y[2] == 0, "silu: %g %g %g", y[0], y[1], y[2]);
    a.activation = H3K_ACTIVATION_GELU_TANH;
    CHECK(h3k_matmul(&a) == H3K_OK && y[0] == 0 && y[1] == 200 && y[2] == 0, "gelu: %g %g %g", y[0], y[1], y[2]);
    close_call(&a.call);
}

static void impossible_arguments_are_refused(void)
{
    problem p = make_problem(Q8_0, 2, 4, 64);
    float y[8];
    h3k_matmul_args good = {.x = p.x, .w = p.w, .y = y, .m = 2, .n = 4, .k = 64, .ldy = 4,
                            .format = H3K_FORMAT_Q8_0}, a;
    good.call = open_call(sizeof good, 1, h3k_matmul_scratch_bytes(1));
    CHECK(h3k_matmul(&good) == H3K_OK, "the good arguments run");
    CHECK(h3k_matmul(NULL) == H3K_BAD_ARGUMENT, "null");
    a = good, a.call.args_bytes--;
    CHECK(h3k_matmul(&a) == H3K_BAD_ARGUMENT, "args_bytes of another version");
    a = good, a.call.scratch_bytes--;
    CHECK(h3k_matmul(&a) == H3K_BAD_SCRATCH, "one byte of scratch too few");
    a = good, a.call.scratch = NULL;
    CHECK(h3k_matmul(&a) == H3K_BAD_SCRATCH, "no scratch");
    a = good, a.k = 63;
    CHECK(h3k_matmul(&a) == H3K_BAD_ARGUMENT, "63 elements are no q8_0 row");
    a = good, a.ldy = 3;
    CHECK(h3k_matmul(&a) == H3K_BAD_ARGUMENT, "rows of y overlap");
    a = good, a.x = NULL;
    CHECK(h3k_matmul(&a) == H3K_BAD_ARGUMENT, "x is null");
    a = good, a.activation = 9;
    CHECK(h3k_matmul(&a) == H3K_BAD_ARGUMENT, "unknown activation");
    a = good, a.activation = H3K_ACTIVATION_SWIGLU;
    CHECK(h3k_matmul(&a) == H3K_BAD_ARGUMENT, "swiglu without values");
    a = good, a.m = 0;
    CHECK(h3k_matmul(&a) == H3K_OK, "no rows are no work");
    int32_t cancel = 1;
    a = good, a.call.cancel = &cancel;
    CHECK(h3k_matmul(&a) == H3K_CANCELLED, "a set flag cancels");
    close_call(&good.call);
    free_problem(&p);
}

static void products_are_right(void)
{
    static const int64_t shapes[][2] = {{1, 1}, {17, 65}, {193, 63}};
    for (int f = 0; f < FORMAT_COUNT; f++) {
        format_id format = (format_id)f;
        int64_t block = format_elements[f];
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int32_t activation = 0; activation <= H3K_ACTIVATION_SWIGLU; activation++)
                product_is_close_to_float64(format, shapes[s][0], shapes[s][1], block == 1 ? 259 : 3 * block, activation);
        product_is_close_to_float64(format, 3, 5, block == 1 ? 1 : block, H3K_ACTIVATION_NONE);
        product_is_close_to_float64(format, 7, 9, block == 1 ? 1023 : 1024, H3K_ACTIVATION_NONE);
        threads_and_tiles_change_no_bit(format);
        weights_may_lie_anywhere(format);
    }
    rows_of_y_may_be_further_apart();
    special_values_arrive();
    silu_ends_are_finite();
}

static void an_unknown_isa_is_refused(void)
{
    const char *before = h3k_isa_name();
    CHECK(h3k_isa_choose("mmx") == H3K_BAD_ARGUMENT && strcmp(h3k_isa_name(), before) == 0, "mmx changes nothing");
    CHECK(h3k_isa_offered(-1) == NULL && h3k_isa_offered(99) == NULL, "the list of variants ends");
}

int main(void)
{
    an_unknown_isa_is_refused();
    with_every_isa(products_are_right);
    impossible_arguments_are_refused();
    return finish("matmul");
}
