/* Norms, modulation, residuals and rotation against float64, with every instruction set.
 *
 * Tier: independent transcription of the equations.
 */
#include "check.h"

/* Relative L2 error allowed: float64 statistics, three float32 roundings. */
#define TOLERANCE 2e-7

static const int64_t widths[] = {1, 7, 8, 17, 193, 1023};

static double *doubles(int64_t count)
{
    return get_memory((size_t)count * sizeof(double));
}

static double inverse_rms(const float *x, int64_t count, double eps)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return 1 / sqrt(sum / (double)count + eps);
}

static void rms_norm_is_close(int64_t rows, int64_t columns, int with_weight)
{
    float *x = random_floats(rows * columns), *weight = random_floats(columns), *y = blank_floats(rows * columns);
    double *expected = doubles(rows * columns);
    h3k_rms_norm_args a = {.call = open_call(sizeof a, 2, 0), .x = x, .weight = with_weight ? weight : NULL, .y = y,
                           .rows = rows, .columns = columns, .eps = 1e-3};
    CHECK(h3k_rms_norm(&a) == H3K_OK, "rms_norm runs");
    for (int64_t i = 0; i < rows * columns; i++)
        expected[i] = (double)x[i] * inverse_rms(x + i / columns * columns, columns, 1e-3) *
                      (with_weight ? (double)weight[i % columns] : 1.0);
    double error = relative_error(y, expected, rows * columns);
    CHECK(error < TOLERANCE, "rms_norm %lldx%lld: error %g", (long long)rows, (long long)columns, error);
    a.y = x;
    CHECK(h3k_rms_norm(&a) == H3K_OK && same_bits(x, y, rows * columns), "rms_norm in place gives the same");
    close_call(&a.call);
    free(x), free(weight), free(y), free(expected);
}

static void layer_norm_is_close(int64_t rows, int64_t columns)
{
    float *x = random_floats(rows * columns), *weight = random_floats(columns), *bias = random_floats(columns);
    float *y = blank_floats(rows * columns);
    double *expected = doubles(rows * columns);
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] += 3.0f;
    h3k_layer_norm_args a = {.call = open_call(sizeof a, 2, 0), .x = x, .weight = weight, .bias = bias, .y = y,
                             .rows = rows, .columns = columns, .eps = 1e-5};
    CHECK(h3k_layer_norm(&a) == H3K_OK, "layer_norm runs");
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, variance = 0;
        for (int64_t c = 0; c < columns; c++)
            mean += (double)x[r * columns + c] / (double)columns;
        for (int64_t c = 0; c < columns; c++)
            variance += pow((double)x[r * columns + c] - mean, 2) / (double)columns;
        for (int64_t c = 0; c < columns; c++)
            expected[r * columns + c] =
                ((double)x[r * columns + c] - mean) / sqrt(variance + 1e-5) * (double)weight[c] + (double)bias[c];
    }
    double error = relative_error(y, expected, rows * columns);
    CHECK(error < TOLERANCE, "layer_norm %lldx%lld: error %g", (long long)rows, (long long)columns, error);
    close_call(&a.call);
    free(x), free(weight), free(bias), free(y), free(expected);
}

/* Three entries of four slots over seven rows. */
static void modulation_uses_the_rows_entry(int64_t columns)
{
    enum { ROWS = 7, ENTRIES = 3, SLOTS = 4, SHIFT = 2, SCALE = 0, GATE = 3 };
    static const int32_t index[ROWS] = {2, 0, 1, 1, 0, 2, 2};
    float *x = random_floats(ROWS * columns), *weight = random_floats(columns), *h = copy_floats(x, ROWS * columns);
    float *table = random_floats(ENTRIES * SLOTS * columns), *y = blank_floats(ROWS * columns);
    double *normed = doubles(ROWS * columns), *gated = doubles(ROWS * columns);
    h3k_norm_modulate_args a = {.call = open_call(sizeof a, 2, 0), .x = x, .weight = weight, .table = table,
                                .row_index = index, .y = y, .rows = ROWS, .columns = columns, .entries = ENTRIES,
                                .slots = SLOTS, .shift_slot = SHIFT, .scale_slot = SCALE, .eps = 1e-6};
    CHECK(h3k_norm_modulate(&a) == H3K_OK, "norm_modulate runs");
    h3k_gated_residual_args g = {.call = {.args_bytes = sizeof g}, .h = h, .y = y, .table = table, .row_index = index,
                                 .rows = ROWS, .columns = columns, .entries = ENTRIES, .slots = SLOTS, .gate_slot = GATE};
    CHECK(h3k_gated_residual(&g) == H3K_OK, "gated_residual runs");
    for (int64_t i = 0; i < ROWS * columns; i++) {
        int64_t row = i / columns, c = i % columns;
        const float *entry = table + index[row] * SLOTS * columns + c;
        normed[i] = (double)x[i] * inverse_rms(x + row * columns, columns, 1e-6) * (double)weight[c] *
                        (1 + (double)entry[SCALE * columns]) + (double)entry[SHIFT * columns];
        gated[i] = (double)x[i] + (double)entry[GATE * columns] * normed[i];
    }
    CHECK(relative_error(y, normed, ROWS * columns) < 2 * TOLERANCE, "norm_modulate, %lld columns", (long long)columns);
    CHECK(relative_error(h, gated, ROWS * columns) < 2 * TOLERANCE, "gated_residual, %lld columns", (long long)columns);
    g.entries = a.entries = 2;
    CHECK(h3k_norm_modulate(&a) == H3K_BAD_ARGUMENT && h3k_gated_residual(&g) == H3K_BAD_ARGUMENT, "entry 2 of 2");
    g.entries = a.entries = ENTRIES;
    g.gate_slot = a.shift_slot = SLOTS;
    CHECK(h3k_norm_modulate(&a) == H3K_BAD_ARGUMENT && h3k_gated_residual(&g) == H3K_BAD_ARGUMENT, "slot 4 of 4");
    close_call(&a.call);
    free(x), free(weight), free(h), free(table), free(y), free(normed), free(gated);
}

static void scaled_residual_takes_a_vector_or_a_number(int64_t columns)
{
    float *y = random_floats(5 * columns), *scale = random_floats(columns), *h = random_floats(5 * columns);
    double *expected = doubles(5 * columns);
    h3k_scaled_residual_args a = {.call = open_call(sizeof a, 2, 0), .h = h, .y = y, .scale_vector = scale, .rows = 5,
                                  .columns = columns, .scale = 0.25f};
    for (int64_t i = 0; i < 5 * columns; i++)
        expected[i] = (double)h[i] + (double)y[i] * ((double)scale[i % columns] + 0.25);
    CHECK(h3k_scaled_residual(&a) == H3K_OK, "with a vector");
    a.scale_vector = NULL;
    CHECK(h3k_scaled_residual(&a) == H3K_OK, "with a number");
    CHECK(relative_error(h, expected, 5 * columns) < TOLERANCE, "both were added, %lld columns", (long long)columns);
    close_call(&a.call);
    free(y), free(scale), free(h), free(expected);
}

typedef struct {
    int64_t rows, heads, kv_heads, head_dim, half;
    int weighted;
} rope_shape;

static void rotate_and_norm(rope_shape s, const float *x, const float *weight, const float *cos_row,
                            const float *sin_row, double *y)
{
    double inverse = inverse_rms(x, s.head_dim, 1e-6);
    for (int64_t c = 0; c < s.head_dim; c++)
        y[c] = (double)x[c] * inverse * (s.weighted ? (double)weight[c] : 1.0);
    for (int64_t c = 0; c < s.half; c++) {
        double low = y[c], high = y[c + s.half];
        y[c] = low * (double)cos_row[c] - high * (double)sin_row[c];
        y[c + s.half] = high * (double)cos_row[c] + low * (double)sin_row[c];
    }
}

static void heads_are_normed_and_rotated(rope_shape s)
{
    int64_t packed = s.heads + 2 * s.kv_heads, count = s.rows * packed * s.head_dim;
    float *qkv = random_floats(count), *weights = random_floats(2 * s.head_dim);
    float *cosines = random_floats(s.rows * s.half), *sines = random_floats(s.rows * s.half);
    double *expected = doubles(count);
    for (int64_t i = 0; i < s.rows * packed; i++) {
        int64_t row = i / packed, head = i % packed;
        const float *x = qkv + i * s.head_dim, *weight = weights + (head < s.heads ? 0 : s.head_dim);
        if (head < s.heads + s.kv_heads)
            rotate_and_norm(s, x, weight, cosines + row * s.half, sines + row * s.half, expected + i * s.head_dim);
        else
            for (int64_t c = 0; c < s.head_dim; c++)
                expected[i * s.head_dim + c] = (double)x[c];
    }
    h3k_qk_norm_rope_args a = {.call = open_call(sizeof a, 2, 0), .qkv = qkv, .rows = s.rows, .heads = s.heads,
                               .kv_heads = s.kv_heads, .head_dim = s.head_dim, .half = s.half, .eps = 1e-6};
    if (s.weighted)
        a.q_weight = weights, a.k_weight = weights + s.head_dim;
    if (s.half > 0)
        a.cos = cosines, a.sin = sines;
    CHECK(h3k_qk_norm_rope(&a) == H3K_OK, "qk_norm_rope runs");
    double error = relative_error(qkv, expected, count);
    CHECK(error < TOLERANCE, "qk_norm_rope, head_dim %lld, half %lld: error %g", (long long)s.head_dim,
          (long long)s.half, error);
    a.half = s.head_dim / 2 + 1;
    CHECK(h3k_qk_norm_rope(&a) == H3K_BAD_ARGUMENT, "more rotated pairs than channels");
    close_call(&a.call);
    free(qkv), free(weights), free(cosines), free(sines), free(expected);
}

static void special_values_arrive(void)
{
    float x[4] = {1e30f, 1e30f, 1e30f, 1e30f}, y[4] = {0};
    h3k_rms_norm_args a = {.call = {.args_bytes = sizeof a}, .x = x, .y = y, .rows = 1, .columns = 4, .eps = 1e-6};
    CHECK(h3k_rms_norm(&a) == H3K_OK && fabsf(y[0] - 1) < 1e-6f, "squares of 1e30 do not overflow: %g", y[0]);
    x[2] = NAN;
    CHECK(h3k_rms_norm(&a) == H3K_OK && isnan(y[0]) && isnan(y[3]), "NaN spoils its row");
    memset(x, 0, sizeof x);
    CHECK(h3k_rms_norm(&a) == H3K_OK && y[0] == 0, "zeros stay zeros");
    int32_t cancel = 1;
    a.call.cancel = &cancel;
    CHECK(h3k_rms_norm(&a) == H3K_CANCELLED, "a set flag cancels");
    a.columns = 0;
    CHECK(h3k_rms_norm(&a) == H3K_BAD_ARGUMENT, "no columns");
}

/* Five rows at an odd float, each entry with another gate, scale and shift; `normed` may take the place of y. */
static void a_gated_residual_leaves_the_next_input(int64_t columns, int in_place)
{
    enum { ROWS = 5, ENTRIES = 2, SLOTS = 3, GATE = 1, SHIFT = 0, SCALE = 2 };
    static const int32_t index[ROWS] = {1, 0, 0, 1, 1};
    int64_t count = ROWS * columns, table_count = ENTRIES * SLOTS * columns;
    float *memory = random_floats(count + 1), *y = random_floats(count + 1) + 1, *weight = random_floats(columns);
    float *table = random_floats(table_count), *next = random_floats(table_count), *h = memory + 1;
    float *apart = copy_floats(h, count), *expected = blank_floats(count), *normed = in_place ? y : blank_floats(count);
    h3k_gated_residual_args g = {.call = open_call(sizeof g, 2, 0), .h = apart, .y = y, .table = table,
                                 .row_index = index, .rows = ROWS, .columns = columns, .entries = ENTRIES,
                                 .slots = SLOTS, .gate_slot = GATE};
    CHECK(h3k_gated_residual(&g) == H3K_OK, "the residual alone runs");
    h3k_norm_modulate_args n = {.call = {.args_bytes = sizeof n}, .x = apart, .weight = weight, .table = next,
                                .row_index = index, .y = expected, .rows = ROWS, .columns = columns,
                                .entries = ENTRIES, .slots = SLOTS, .shift_slot = SHIFT, .scale_slot = SCALE,
                                .eps = 1e-5};
    CHECK(h3k_norm_modulate(&n) == H3K_OK, "the norm alone runs");
    h3k_gated_residual_norm_args a = {.call = open_call(sizeof a, 3, 0), .h = h, .y = y, .table = table,
                                      .weight = weight, .norm_table = next, .row_index = index, .normed = normed,
                                      .rows = ROWS, .columns = columns, .entries = ENTRIES, .slots = SLOTS,
                                      .gate_slot = GATE, .shift_slot = SHIFT, .scale_slot = SCALE, .eps = 1e-5};
    CHECK(h3k_gated_residual_norm(&a) == H3K_OK, "both in one run");
    CHECK(same_bits(h, apart, count) && same_bits(normed, expected, count), "both in one, %lld columns, in place %d",
          (long long)columns, in_place);
    a.gate_slot = SLOTS;
    CHECK(h3k_gated_residual_norm(&a) == H3K_BAD_ARGUMENT, "a gate slot that is none");
    a.gate_slot = GATE, a.entries = 1;
    CHECK(h3k_gated_residual_norm(&a) == H3K_BAD_ARGUMENT, "entry 1 of 1");
    close_call(&a.call), close_call(&g.call);
    if (!in_place)
        free(normed);
    free(memory), free(y - 1), free(weight), free(table), free(next), free(apart), free(expected);
}

static void norms_are_right(void)
{
    static const rope_shape shapes[] = {
        {1, 1, 1, 4, 2, 1}, {17, 3, 1, 20, 7, 1}, {5, 4, 2, 128, 48, 1}, {193, 2, 2, 8, 4, 0}, {9, 2, 1, 12, 0, 1},
    };
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        rms_norm_is_close(17, widths[i], 1);
        rms_norm_is_close(193, widths[i], 0);
        layer_norm_is_close(17, widths[i]);
        modulation_uses_the_rows_entry(widths[i]);
        scaled_residual_takes_a_vector_or_a_number(widths[i]);
        a_gated_residual_leaves_the_next_input(widths[i], 0);
        a_gated_residual_leaves_the_next_input(widths[i], 1);
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        heads_are_normed_and_rotated(shapes[i]);
    special_values_arrive();
}

int main(void)
{
    with_every_isa(norms_are_right);
    return finish("norm");
}
