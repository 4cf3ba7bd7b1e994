/* What every attention must do, against float64 with the whole row of scores in memory. The including test runs it. */
#ifndef H3K_TESTS_ATTENTION_CLAIMS_H
#define H3K_TESTS_ATTENTION_CLAIMS_H

#include "check.h"

typedef struct {
    int64_t rows, heads, kv_heads, head_dim;
    int32_t causal, mode, kv;
    int64_t start, frame, radius; /* the window; frame 0: none */
} shape;

static const char *const kv_names[] = {"f32", "bf16", "int8", "int4"};

static int64_t width_of(shape s)
{
    return (s.heads + 2 * s.kv_heads) * s.head_dim;
}

static h3k_status run(shape s, const float *qkv, int32_t threads, float *y)
{
    h3k_attention_args a = {.qkv = qkv, .y = y, .rows = s.rows, .heads = s.heads, .kv_heads = s.kv_heads,
                            .head_dim = s.head_dim, .causal = s.causal, .mode = s.mode, .kv = s.kv,
                            .window_start = s.start, .window_rows = s.frame, .window_radius = s.radius};
    a.call = open_call(sizeof a, threads, h3k_attention_scratch_bytes(s.rows, s.head_dim, threads, s.mode, s.kv));
    h3k_status status = h3k_attention(&a);
    close_call(&a.call);
    return status;
}

/* Relative L2 error allowed for scores of standard deviation 1. Float: float32 sums of up to 300 terms. bf16 keeps 8
 * bits: 2^-9 / sqrt(3) for each of keys and values. NEAR: 13 bits of queries, keys, probabilities and values, each
 * 1e-4 to 2e-4. Kept int8: 6.5e-3 for keys and for values (rounding of 127 to a side, largest of 128 Gaussians 2.8).
 * Products of int8: the same for all four factors, up to twice that where sums must fit int16. int4: 18 times int8. */
static double tolerance_of(shape s)
{
    int is_float = strcmp(h3k_attention_path(s.mode, s.causal), "float") == 0;
    if (s.kv == H3K_KV_INT4)
        return 0.25;
    if (!is_float && s.mode >= H3K_MODE_EXACT)
        return s.mode == H3K_MODE_FAST ? 2.2e-2 : 2e-2;
    if (s.kv == H3K_KV_INT8)
        return 1.4e-2;
    if (!is_float)
        return 1e-3;
    return s.kv == H3K_KV_BF16 && s.mode == H3K_MODE_FLOAT ? 5e-3 : 2e-6;
}

static int is_seen(shape s, int64_t r, int64_t j)
{
    if (s.causal && j > r)
        return 0;
    if (s.frame == 0 || r < s.start || j < s.start)
        return 1;
    int64_t apart = (r - s.start) / s.frame - (j - s.start) / s.frame;
    return apart <= s.radius && -apart <= s.radius;
}

static void expected_row(shape s, const float *qkv, int64_t r, int64_t h, double *scores, double *y)
{
    int64_t width = width_of(s), g = h / (s.heads / s.kv_heads);
    const float *q = qkv + r * width + h * s.head_dim;
    double maximum = -INFINITY, total = 0;
    for (int64_t j = 0; j < s.rows; j++) {
        const float *k = qkv + j * width + (s.heads + g) * s.head_dim;
        scores[j] = is_seen(s, r, j) ? 0 : -INFINITY;
        for (int64_t c = 0; c < s.head_dim; c++)
            scores[j] += (double)q[c] * (double)k[c] / sqrt((double)s.head_dim);
        maximum = fmax(maximum, scores[j]);
    }
    for (int64_t c = 0; c < s.head_dim; c++)
        y[c] = 0;
    for (int64_t j = 0; j < s.rows; j++) {
        const float *v = qkv + j * width + (s.heads + s.kv_heads + g) * s.head_dim;
        double p = exp(scores[j] - maximum);
        total += p;
        for (int64_t c = 0; c < s.head_dim; c++)
            y[c] += p * (double)v[c];
    }
    for (int64_t c = 0; c < s.head_dim; c++)
        y[c] /= total;
}

/* Close to Gaussian: the sum of three uniform numbers. */
static float *gaussian_floats(int64_t count)
{
    float *values = get_memory((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = random_float() + random_float() + random_float();
    return values;
}

static void attention_is_close_to_float64(shape s)
{
    int64_t count = s.rows * s.heads * s.head_dim;
    float *qkv = gaussian_floats(s.rows * width_of(s)), *y = blank_floats(count);
    double *expected = get_memory((size_t)count * sizeof *expected);
    double *scores = get_memory((size_t)s.rows * sizeof *scores);
    CHECK(run(s, qkv, 2, y) == H3K_OK, "attention runs");
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t h = 0; h < s.heads; h++)
            expected_row(s, qkv, r, h, scores, expected + (r * s.heads + h) * s.head_dim);
    double error = relative_error(y, expected, count);
    CHECK(error < tolerance_of(s), "%s, kept %s: %lld rows, %lld of %lld heads x %lld, causal %d, frames of %lld: error %g",
          h3k_attention_path(s.mode, s.causal), kv_names[s.kv], (long long)s.rows, (long long)s.kv_heads,
          (long long)s.heads, (long long)s.head_dim, (int)s.causal, (long long)s.frame, error);
    free(qkv), free(y), free(expected), free(scores);
}

static void threads_change_no_bit(shape s)
{
    int64_t count = s.rows * s.heads * s.head_dim;
    float *qkv = gaussian_floats(s.rows * width_of(s)), *y = blank_floats(count), *again = blank_floats(count);
    run(s, qkv, 1, y);
    for (int32_t threads = 2; threads <= 8; threads *= 2) {
        run(s, qkv, threads, again);
        CHECK(same_bits(y, again, count), "%s: %d threads give the same bits", h3k_attention_path(s.mode, s.causal),
              (int)threads);
    }
    free(qkv), free(y), free(again);
}

/* Rows that are equal get equal results wherever they stand in a block: query 3 is copied to all the others. */
static void place_in_the_block_changes_no_bit(shape s)
{
    float *qkv = gaussian_floats(s.rows * width_of(s)), *y = blank_floats(s.rows * s.heads * s.head_dim);
    int64_t out = s.heads * s.head_dim;
    for (int64_t r = 0; r < s.rows; r++)
        memcpy(qkv + r * width_of(s), qkv + 3 * width_of(s), (size_t)out * sizeof *qkv);
    run(s, qkv, 1, y);
    int same = 1;
    for (int64_t r = 0; r < s.rows; r++)
        same &= same_bits(y + r * out, y, out);
    CHECK(same, "%s: equal queries get equal bits", h3k_attention_path(s.mode, s.causal));
    free(qkv), free(y);
}

/* Equal keys: the mean of the values. Then scores of 1e6: one key each, nothing above the largest value. */
static void extremes_are_handled(shape s)
{
    int64_t width = width_of(s), count = s.rows * s.heads * s.head_dim, k0 = s.heads * s.head_dim;
    float *qkv = gaussian_floats(s.rows * width), *y = blank_floats(count), largest = 0;
    double *mean = get_memory((size_t)count * sizeof *mean);
    for (int64_t r = 1; r < s.rows; r++)
        memcpy(qkv + r * width + k0, qkv + k0, (size_t)(s.kv_heads * s.head_dim) * sizeof *qkv);
    for (int64_t i = 0; i < count; i++) {
        mean[i] = 0;
        int64_t channel = i % s.head_dim, group = i / s.head_dim % s.heads / (s.heads / s.kv_heads);
        for (int64_t r = 0; r < s.rows; r++)
            mean[i] += (double)qkv[r * width + k0 + (s.kv_heads + group) * s.head_dim + channel] / (double)s.rows;
    }
    run(s, qkv, 1, y);
    CHECK(relative_error(y, mean, count) < 0.3 * tolerance_of(s) * sqrt((double)s.rows), "%s: equal keys give the mean",
          h3k_attention_path(s.mode, s.causal));
    for (int64_t i = 0; i < s.rows * width; i++) {
        qkv[i] *= i % width < k0 + s.kv_heads * s.head_dim ? 1e3f : 1.0f;
        largest = fmaxf(largest, i % width < k0 + s.kv_heads * s.head_dim ? 0 : fabsf(qkv[i]));
    }
    run(s, qkv, 1, y);
    int fine = 1;
    for (int64_t i = 0; i < count; i++)
        fine &= isfinite(y[i]) && fabsf(y[i]) <= 1.3f * largest;
    CHECK(fine, "%s, kept %s: large scores stay finite", h3k_attention_path(s.mode, s.causal), kv_names[s.kv]);
    free(qkv), free(y), free(mean);
}

static int all_nan(const float *y, int64_t count)
{
    int all = 1;
    for (int64_t i = 0; i < count; i++)
        all &= isnan(y[i]) != 0;
    return all;
}

/* One head: a NaN query spoils its row alone, a NaN key every row that sees it, a NaN value its channel. */
static void nan_comes_out(shape s, float nan)
{
    int64_t d = s.head_dim, width = 3 * d;
    s.heads = s.kv_heads = 1;
    float *qkv = gaussian_floats(s.rows * width), *y = blank_floats(s.rows * d), *kept = copy_floats(qkv, s.rows * width);
    const char *path = h3k_attention_path(s.mode, s.causal);
    qkv[2 * width + 1] = nan;
    run(s, qkv, 1, y);
    CHECK(all_nan(y + 2 * d, d) && !isnan(y[d]) && !isnan(y[3 * d]), "%s: a NaN query spoils its row alone", path);
    memcpy(qkv, kept, (size_t)(s.rows * width) * sizeof *qkv);
    qkv[5 * width + d + 2] = nan;
    run(s, qkv, 1, y);
    CHECK(all_nan(y, s.rows * d), "%s, kept %s: a NaN key comes out", path, kv_names[s.kv]);
    memcpy(qkv, kept, (size_t)(s.rows * width) * sizeof *qkv);
    qkv[(s.rows - 1) * width + 2 * d + 3] = nan;
    run(s, qkv, 1, y);
    int channel = 1;
    for (int64_t r = 0; r < s.rows; r++)
        channel &= isnan(y[r * d + 3]) && !isnan(y[r * d + 2]);
    CHECK(channel, "%s, kept %s: a NaN value spoils its channel", path, kv_names[s.kv]);
    free(qkv), free(y), free(kept);
}

/* Every storage of one mode. */
static void mode_is_right(int32_t mode)
{
    static const shape shapes[] = {
        {.rows = 1, .heads = 2, .kv_heads = 1, .head_dim = 20}, {.rows = 17, .heads = 2, .kv_heads = 2, .head_dim = 64},
        {.rows = 193, .heads = 2, .kv_heads = 1, .head_dim = 128}, {.rows = 130, .heads = 1, .kv_heads = 1, .head_dim = 256},
        {.rows = 193, .heads = 1, .kv_heads = 1, .head_dim = 64, .start = 21, .frame = 10, .radius = 1},
        {.rows = 300, .heads = 2, .kv_heads = 2, .head_dim = 20, .start = 70, .frame = 33, .radius = 0},
        {.rows = 97, .heads = 1, .kv_heads = 1, .head_dim = 128, .start = 0, .frame = 7, .radius = 2},
        {.rows = 65, .heads = 1, .kv_heads = 1, .head_dim = 64, .start = 80, .frame = 9, .radius = 1},
    };
    for (int32_t kv = H3K_KV_F32; kv <= H3K_KV_INT4; kv++) {
        int is_own = kv == H3K_KV_F32 || kv == H3K_KV_INT8; /* the other storages get the last shapes alone */
        for (size_t i = is_own ? 0 : 5; i < sizeof shapes / sizeof *shapes; i++) {
            shape s = shapes[i];
            s.mode = mode;
            s.kv = kv;
            attention_is_close_to_float64(s);
        }
        shape s = {.rows = 150, .heads = 4, .kv_heads = 2, .head_dim = 20, .mode = mode, .kv = kv};
        threads_change_no_bit(s);
        place_in_the_block_changes_no_bit(s);
        s.rows = 70;
        extremes_are_handled(s);
        float filled;
        memset(&filled, 0xff, sizeof filled);
        nan_comes_out(s, filled);
        s.rows = 150, s.start = 30, s.frame = 25, s.radius = 1;
        threads_change_no_bit(s);
    }
}

#endif
