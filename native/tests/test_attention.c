/* Attention against float64 with the whole row of scores in memory.
 *
 * Tier: independent transcription of the equation.
 */
#include "check.h"

/* Relative L2 error allowed: scores of unit size, float32 sums of up to 300 terms. */
#define TOLERANCE 2e-6

typedef struct {
    int64_t rows, heads, kv_heads, head_dim;
    int32_t causal;
} shape;

static int64_t width_of(shape s)
{
    return (s.heads + 2 * s.kv_heads) * s.head_dim;
}

static h3k_status run(shape s, const float *qkv, int32_t threads, float *y)
{
    h3k_attention_args a = {.qkv = qkv, .y = y, .rows = s.rows, .heads = s.heads, .kv_heads = s.kv_heads,
                            .head_dim = s.head_dim, .causal = s.causal};
    a.call = open_call(sizeof a, threads, h3k_attention_scratch_bytes(s.head_dim, threads));
    h3k_status status = h3k_attention(&a);
    close_call(&a.call);
    return status;
}

static void expected_row(shape s, const float *qkv, int64_t r, int64_t h, double *scores, double *y)
{
    int64_t width = width_of(s), g = h / (s.heads / s.kv_heads), keys = s.causal ? r + 1 : s.rows;
    const float *q = qkv + r * width + h * s.head_dim;
    double maximum = -INFINITY, total = 0;
    for (int64_t j = 0; j < keys; j++) {
        const float *k = qkv + j * width + (s.heads + g) * s.head_dim;
        scores[j] = 0;
        for (int64_t c = 0; c < s.head_dim; c++)
            scores[j] += (double)q[c] * (double)k[c] / sqrt((double)s.head_dim);
        maximum = fmax(maximum, scores[j]);
    }
    for (int64_t c = 0; c < s.head_dim; c++)
        y[c] = 0;
    for (int64_t j = 0; j < keys; j++) {
        const float *v = qkv + j * width + (s.heads + s.kv_heads + g) * s.head_dim;
        double p = exp(scores[j] - maximum);
        total += p;
        for (int64_t c = 0; c < s.head_dim; c++)
            y[c] += p * (double)v[c];
    }
    for (int64_t c = 0; c < s.head_dim; c++)
        y[c] /= total;
}

static void attention_is_close_to_float64(shape s)
{
    int64_t count = s.rows * s.heads * s.head_dim;
    float *qkv = random_floats(s.rows * width_of(s)), *y = blank_floats(count);
    double *expected = get_memory((size_t)count * sizeof *expected);
    double *scores = get_memory((size_t)s.rows * sizeof *scores);
    for (int64_t i = 0; i < s.rows * width_of(s); i++)
        qkv[i] *= 3.0f;
    CHECK(run(s, qkv, 2, y) == H3K_OK, "attention runs");
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t h = 0; h < s.heads; h++)
            expected_row(s, qkv, r, h, scores, expected + (r * s.heads + h) * s.head_dim);
    double error = relative_error(y, expected, count);
    CHECK(error < TOLERANCE, "%lld rows, %lld of %lld heads x %lld, causal %d: error %g", (long long)s.rows,
          (long long)s.kv_heads, (long long)s.heads, (long long)s.head_dim, (int)s.causal, error);
    free(qkv), free(y), free(expected), free(scores);
}

static void threads_change_no_bit(void)
{
    shape s = {.rows = 230, .heads = 4, .kv_heads = 2, .head_dim = 20, .causal = 1};
    int64_t count = s.rows * s.heads * s.head_dim;
    float *qkv = random_floats(s.rows * width_of(s)), *y = blank_floats(count), *again = blank_floats(count);
    run(s, qkv, 1, y);
    for (int32_t threads = 2; threads <= 8; threads *= 2) {
        run(s, qkv, threads, again);
        CHECK(same_bits(y, again, count), "%d threads give the same bits", (int)threads);
    }
    shape head = s;
    head.rows = 131;
    run(head, qkv, 1, again);
    CHECK(same_bits(y, again, head.rows * s.heads * s.head_dim), "causal rows do not depend on the rows after them");
    free(qkv), free(y), free(again);
}

/* One head of four channels; q, k, v of row r at qkv + 12 r. */
static void special_scores_are_handled(void)
{
    shape s = {.rows = 150, .heads = 1, .kv_heads = 1, .head_dim = 4};
    float *qkv = random_floats(s.rows * 12), *y = blank_floats(s.rows * 4), *kept = copy_floats(qkv, s.rows * 12);
    for (int r = 0; r < 100; r++)
        qkv[12 * r + 4] = -INFINITY;
    for (int r = 0; r < 150; r++)
        qkv[12 * r] = 1.0f;
    run(s, qkv, 1, y);
    float *tail = copy_floats(qkv + 1200, 50 * 12), *part = blank_floats(50 * 4);
    shape last = s;
    last.rows = 50;
    run(last, tail, 1, part);
    double expected[4] = {(double)part[0], (double)part[1], (double)part[2], (double)part[3]};
    CHECK(relative_error(y + 400, expected, 4) < TOLERANCE, "a first tile of -inf scores weighs nothing");
    memcpy(qkv, kept, (size_t)s.rows * 48);
    qkv[12 * 40] = NAN;
    run(s, qkv, 1, y);
    CHECK(isnan(y[160]) && isnan(y[163]) && !isnan(y[156]) && !isnan(y[164]), "a NaN query spoils its row alone");
    memcpy(qkv, kept, (size_t)s.rows * 48);
    qkv[12 * 149 + 5] = NAN;
    s.causal = 1;
    run(s, qkv, 1, y);
    CHECK(!isnan(y[0]) && !isnan(y[4 * 148]) && isnan(y[4 * 149]), "a NaN key in the future is not seen");
    for (int i = 0; i < s.rows * 12; i++)
        qkv[i] = i % 12 < 8 ? 1e4f * kept[i] : kept[i];
    run(s, qkv, 1, y);
    int finite = 1;
    for (int i = 0; i < s.rows * 4; i++)
        finite &= isfinite(y[i]) && fabsf(y[i]) <= 1.0f;
    CHECK(finite, "scores of 1e8 choose one key each");
    free(qkv), free(y), free(kept), free(tail), free(part);
}

static void impossible_arguments_are_refused(void)
{
    float qkv[3 * 8] = {0}, y[8];
    h3k_attention_args good = {.qkv = qkv, .y = y, .rows = 1, .heads = 1, .kv_heads = 1, .head_dim = 8}, a;
    good.call = open_call(sizeof good, 1, h3k_attention_scratch_bytes(8, 1));
    CHECK(h3k_attention(&good) == H3K_OK, "the good arguments run");
    a = good, a.head_dim = 6;
    CHECK(h3k_attention(&a) == H3K_BAD_ARGUMENT, "head_dim 6 is no multiple of 4");
    a = good, a.head_dim = 260;
    CHECK(h3k_attention(&a) == H3K_BAD_ARGUMENT, "head_dim above 256");
    a = good, a.kv_heads = 2;
    CHECK(h3k_attention(&a) == H3K_BAD_ARGUMENT, "two key heads for one query head");
    a = good, a.call.scratch_bytes--;
    CHECK(h3k_attention(&a) == H3K_BAD_SCRATCH, "one byte of scratch too few");
    int32_t cancel = 1;
    a = good, a.call.cancel = &cancel;
    CHECK(h3k_attention(&a) == H3K_CANCELLED, "a set flag cancels");
    close_call(&good.call);
}

static void attention_is_right(void)
{
    static const shape shapes[] = {
        {1, 2, 1, 4, 0}, {17, 4, 2, 12, 1}, {63, 1, 1, 256, 0}, {65, 6, 3, 20, 1}, {97, 3, 3, 100, 0},
        {193, 4, 1, 8, 1}, {193, 2, 2, 128, 0}, {300, 1, 1, 64, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        attention_is_close_to_float64(shapes[i]);
    threads_change_no_bit();
    special_scores_are_handled();
}

int main(void)
{
    with_every_isa(attention_is_right);
    impossible_arguments_are_refused();
    return finish("attention");
}
