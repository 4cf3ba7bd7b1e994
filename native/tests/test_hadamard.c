/* The rotation of rows against the explicit Kronecker matrix in float64.
 *
 * Tier: independent transcription. Cannot catch a checkpoint that means another matrix.
 */
#include "check.h"

/* Relative L2 error allowed: two roundings for each factor H4 (2^-24 each), two more for the scale and the doubling. */
static double tolerance(int64_t group)
{
    double roundings = 2;
    for (; group > 1; group /= 4)
        roundings += 2;
    return roundings * 0x1p-24;
}

/* Entry of H4 (x) H4 (x) ...: one sign for each pair of base-4 digits, over the square root of the size. */
static double entry(int64_t group, int64_t row, int64_t column)
{
    double value = 1;
    for (; group > 1; group /= 4, row /= 4, column /= 4)
        value *= row % 4 + column % 4 == 3 ? -0.5 : 0.5;
    return value;
}

typedef struct {
    int64_t rows, columns, group;
    int scaled;
} shape;

static void rotate_in_float64(shape s, const float *x, const float *scale, double *y)
{
    for (int64_t i = 0; i < s.rows * s.columns; i++) {
        int64_t column = i % s.columns, from = i - column % s.group;
        y[i] = 0;
        for (int64_t d = 0; d < s.group; d++)
            y[i] += (double)x[from + d] * (s.scaled ? (double)scale[(from + d) % s.columns] : 1.0) *
                    entry(s.group, d, column % s.group);
    }
}

static h3k_status rotate(shape s, int32_t threads, const float *x, const float *scale, float *y)
{
    h3k_rotate_rows_args a = {.call = open_call(sizeof a, threads, 0), .x = x, .pre_scale = s.scaled ? scale : NULL,
                              .y = y, .rows = s.rows, .columns = s.columns, .group = s.group};
    h3k_status status = h3k_rotate_rows(&a);
    close_call(&a.call);
    return status;
}

static void rotation_is_the_kronecker_matrix(shape s)
{
    int64_t count = s.rows * s.columns;
    float *x = random_floats(count), *scale = random_floats(s.columns), *y = blank_floats(count);
    float *again = blank_floats(count);
    double *expected = get_memory((size_t)count * sizeof *expected);
    rotate_in_float64(s, x, scale, expected);
    CHECK(rotate(s, 1, x, scale, y) == H3K_OK, "rotate_rows runs");
    double error = relative_error(y, expected, count);
    CHECK(error <= tolerance(s.group), "%lld rows of %lld in groups of %lld: error %g", (long long)s.rows,
          (long long)s.columns, (long long)s.group, error);
    CHECK(rotate(s, 3, x, scale, again) == H3K_OK && same_bits(y, again, count), "three threads give the same");
    for (int64_t row = 0; row < s.rows; row++)
        rotate((shape){1, s.columns, s.group, s.scaled}, 1, x + row * s.columns, scale, again + row * s.columns);
    CHECK(same_bits(y, again, count), "row by row gives the same");
    memcpy(again, x, (size_t)count * sizeof *x);
    CHECK(rotate(s, 2, again, scale, again) == H3K_OK && same_bits(y, again, count), "in place gives the same");
    free(x), free(scale), free(y), free(again), free(expected);
}

static void a_second_rotation_undoes_the_first(int64_t group)
{
    shape s = {3, 3 * group, group, 0};
    int64_t count = s.rows * s.columns;
    float *x = random_floats(count), *y = blank_floats(count);
    double *expected = get_memory((size_t)count * sizeof *expected);
    for (int64_t i = 0; i < count; i++)
        expected[i] = (double)x[i];
    rotate(s, 1, x, NULL, y);
    rotate(s, 1, y, NULL, y);
    CHECK(relative_error(y, expected, count) <= 2 * tolerance(group), "twice in groups of %lld", (long long)group);
    free(x), free(y), free(expected);
}

static void special_values_stay_in_their_group(void)
{
    float x[48] = {0}, y[48];
    x[3] = NAN, x[17] = 0x1.8p127f, x[40] = 0x1p-149f;
    CHECK(rotate((shape){1, 48, 16, 0}, 1, x, NULL, y) == H3K_OK, "runs");
    int wrong = 0;
    for (int i = 0; i < 16; i++)
        wrong += !isnan(y[i]) + (fabsf(y[16 + i]) != 0x1.8p125f) + isnan(y[32 + i]);
    CHECK(wrong == 0, "NaN fills its group alone and the largest values do not overflow");
}

static void impossible_arguments_are_refused(void)
{
    float x[12] = {0}, y[12];
    static const int64_t groups[] = {0, -4, 2, 3, 8, 12, 16};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        CHECK(rotate((shape){1, 12, groups[i], 0}, 1, x, NULL, y) == H3K_BAD_ARGUMENT, "group %d", (int)groups[i]);
    CHECK(rotate((shape){0, 12, 4, 0}, 1, x, NULL, y) == H3K_OK, "no rows");
    CHECK(rotate((shape){1, 12, 4, 0}, 1, NULL, NULL, y) == H3K_BAD_ARGUMENT, "no input");
    int32_t cancel = 1;
    h3k_rotate_rows_args a = {.call = {.args_bytes = sizeof a, .cancel = &cancel}, .x = x, .y = y, .rows = 1,
                              .columns = 12, .group = 4};
    CHECK(h3k_rotate_rows(&a) == H3K_CANCELLED, "a set flag cancels");
}

int main(void)
{
    static const shape shapes[] = {
        {1, 5, 1, 1},  {3, 12, 4, 0},    {2, 20, 4, 1},    {5, 48, 16, 0},   {2, 16, 16, 1},     {7, 192, 64, 1},
        {1, 64, 64, 0}, {23, 768, 256, 1}, {2, 256, 256, 0}, {2, 1024, 1024, 1}, {1, 4096, 4096, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        rotation_is_the_kronecker_matrix(shapes[i]);
    for (int64_t group = 4; group <= 1024; group *= 4)
        a_second_rotation_undoes_the_first(group);
    special_values_stay_in_their_group();
    impossible_arguments_are_refused();
    return finish("hadamard");
}
