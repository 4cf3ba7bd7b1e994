/* The integer modes against the same arithmetic in float64: x rounded per 256 elements as the header says, weights from the
 * formulas, FAST weights requantised where the instruction set does it.
 *
 * Tier: independent transcription. What rounding x costs a real layer is measured elsewhere (tests/core/kernels).
 */
#include <stdbool.h>

#include "weights.h"

#define CHUNK 256

/* As a share of the sum of absolute terms: float32 sums of at most 16 groups in a chunk, and of the chunks. */
#define TOLERANCE 1e-6

typedef struct {
    format_id format;
    int32_t mode;
    int64_t m, n, k;
    float *x, *bias, *bias_value;
    uint8_t *w, *w_value;
} problem;

static problem make_problem(format_id format, int32_t mode, int64_t m, int64_t n, int64_t k)
{
    return (problem){format,           mode,
                     m,                n,
                     k,                random_floats(m * k),
                     random_floats(n), random_floats(n),
                     random_weights(format, n, k), random_weights(format, n, k)};
}

static void free_problem(problem *p)
{
    free(p->x), free(p->bias), free(p->bias_value), free(p->w), free(p->w_value);
}

static int32_t packing_of(const problem *p)
{
    return h3k_packing((int32_t)p->format, p->mode);
}

static void *packed_memory(int64_t rows, int64_t columns, int32_t packing)
{
    int64_t bytes = h3k_packed_bytes(rows, columns, packing);
    void *memory = aligned_alloc(64, (size_t)(bytes > 0 ? bytes : 64));
    memset(memory, 0xff, (size_t)bytes);
    return memory;
}

static void *pack(const float *x, int64_t rows, int64_t columns, int32_t packing, int32_t threads)
{
    void *packed = packed_memory(rows, columns, packing);
    h3k_pack_rows_args a = {.call = open_call(sizeof a, threads, 0), .x = x, .packed = packed, .rows = rows,
                            .columns = columns, .packing = packing};
    CHECK(h3k_pack_rows(&a) == H3K_OK, "%lld x %lld pack", (long long)rows, (long long)columns);
    close_call(&a.call);
    return packed;
}

/* y, or packed_y in `packing_y` when y is null. */
static void run(const problem *p, int32_t activation, int32_t threads, float *y, void *packed_y, int32_t packing_y)
{
    void *packed = pack(p->x, p->m, p->k, packing_of(p), threads);
    h3k_matmul_args a = {.packed = packed, .w = p->w, .bias = p->bias, .y = y, .packed_y = packed_y, .m = p->m, .n = p->n,
                         .k = p->k, .ldy = p->n, .format = (int32_t)p->format, .mode = p->mode, .activation = activation,
                         .packing_y = packing_y};
    if (activation == H3K_ACTIVATION_SWIGLU)
        a.w_value = p->w_value, a.bias_value = p->bias_value;
    a.call = open_call(sizeof a, threads, h3k_matmul_scratch_bytes(threads));
    CHECK(h3k_matmul(&a) == H3K_OK, "%s in mode %d runs", format_names[p->format], (int)p->mode);
    close_call(&a.call);
    free(packed);
}

/* x as the header describes it: one scale per 256 elements of a row. */
static void round_chunk(const float *x, int64_t count, double limit, double *out)
{
    float largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    float inverse = (float)limit / largest, d = largest / (float)limit;
    for (int64_t i = 0; i < count; i++)
        out[i] = largest > 0 ? (double)nearbyintf(x[i] * inverse) * (double)d : 0;
}

static double *rounded_rows(const problem *p)
{
    double *x = get_memory((size_t)(p->m * p->k) * sizeof *x);
    double limit = packing_of(p) == H3K_PACKING_I8 ? 127 : 32512;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t k = 0; k < p->k; k += CHUNK) {
            int64_t count = p->k - k < CHUNK ? p->k - k : CHUNK;
            round_chunk(p->x + i * p->k + k, count, limit, x + i * p->k + k);
        }
    return x;
}

static bool requantises(const problem *p)
{
    bool integer = format_elements[p->format] > 1;
    return p->mode == H3K_MODE_FAST && (!integer || strcmp(h3k_isa_name(), "avx2") != 0);
}

static double *weight_rows(const problem *p, const uint8_t *w)
{
    double *rows = get_memory((size_t)(p->n * p->k) * sizeof *rows);
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t k = 0; k < p->k; k += CHUNK) {
            int64_t count = p->k - k < CHUNK ? p->k - k : CHUNK;
            double *out = rows + j * p->k + k;
            float values[CHUNK];
            for (int64_t c = 0; c < count; c++) {
                out[c] = weight_value(p->format, w, p->k, j, k + c);
                values[c] = (float)out[c];
            }
            if (requantises(p))
                round_chunk(values, count, 127, out);
        }
    return rows;
}

static void product_is_that_of_the_rounded_rows(format_id format, int32_t mode, int64_t m, int64_t n, int64_t k)
{
    problem p = make_problem(format, mode, m, n, k);
    if (packing_of(&p) == H3K_PACKING_NONE) {
        free_problem(&p);
        return;
    }
    float *y = blank_floats(m * n);
    run(&p, H3K_ACTIVATION_NONE, 2, y, NULL, 0);
    double *x = rounded_rows(&p), *w = weight_rows(&p, p.w), worst = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double value = (double)p.bias[j], magnitude = fabs(value);
            for (int64_t c = 0; c < k; c++) {
                value += x[i * k + c] * w[j * k + c];
                magnitude += fabs(x[i * k + c] * w[j * k + c]);
            }
            double error = fabs((double)y[i * n + j] - value) / magnitude;
            worst = error > worst || isnan(error) ? error : worst;
        }
    CHECK(worst < TOLERANCE, "%s: %s mode %d %lldx%lldx%lld: error up to %g", h3k_isa_name(), format_names[format],
          (int)mode, (long long)m, (long long)n, (long long)k, worst);
    free(x), free(w), free(y);
    free_problem(&p);
}

static void threads_and_row_counts_change_no_bit(format_id format, int32_t mode)
{
    problem p = make_problem(format, mode, only_isa() == NULL ? 523 : 50, 70, 512);
    if (packing_of(&p) != H3K_PACKING_NONE) {
        float *y = blank_floats(p.m * p.n), *again = blank_floats(p.m * p.n);
        run(&p, H3K_ACTIVATION_SWIGLU, 1, y, NULL, 0);
        for (int32_t threads = 2; threads <= 8 && only_isa() == NULL; threads *= 2) {
            run(&p, H3K_ACTIVATION_SWIGLU, threads, again, NULL, 0);
            CHECK(same_bits(y, again, p.m * p.n), "%s: %d threads, same bits", format_names[format], (int)threads);
        }
        for (int64_t count = 1; count <= 17; count += 1 + count / 4) {
            problem part = p;
            part.m = count;
            part.x = p.x + (p.m - count) * p.k;
            run(&part, H3K_ACTIVATION_SWIGLU, 1, again, NULL, 0);
            CHECK(same_bits(y + (p.m - count) * p.n, again, count * p.n), "%s mode %d: the last %lld rows alone",
                  format_names[format], (int)mode, (long long)count);
        }
        free(y), free(again);
    }
    free_problem(&p);
}

static void a_packed_result_is_the_packed_form_of_the_plain_one(format_id format, int32_t mode, int32_t packing_y)
{
    problem p = make_problem(format, mode, only_isa() == NULL ? 300 : 20, 288, 256);
    if (packing_of(&p) != H3K_PACKING_NONE) {
        float *y = blank_floats(p.m * p.n);
        run(&p, H3K_ACTIVATION_SWIGLU, 2, y, NULL, 0);
        void *expected = pack(y, p.m, p.n, packing_y, 1), *got = packed_memory(p.m, p.n, packing_y);
        run(&p, H3K_ACTIVATION_SWIGLU, 2, NULL, got, packing_y);
        CHECK(memcmp(expected, got, (size_t)h3k_packed_bytes(p.m, p.n, packing_y)) == 0, "%s mode %d packs to %d",
              format_names[format], (int)mode, (int)packing_y);
        free(y), free(expected), free(got);
    }
    free_problem(&p);
}

static void special_values_arrive(void)
{
    problem p = make_problem(Q4_0, H3K_MODE_EXACT, 4, 9, 512);
    if (packing_of(&p) != H3K_PACKING_NONE) {
        float *y = blank_floats(36);
        memset(p.x, 0, 512 * sizeof *p.x);
        p.x[512 + 3] = NAN;
        p.x[1024 + 300] = INFINITY;
        for (int i = 0; i < 512; i++)
            p.x[1536 + i] = 1e-38f;
        run(&p, H3K_ACTIVATION_NONE, 1, y, NULL, 0);
        CHECK(same_bits(y, p.bias, 9), "a row of zeros gives the bias");
        for (int j = 0; j < 9; j++) {
            CHECK(isnan(y[9 + j]) && !isfinite(y[18 + j]), "NaN and infinity reach column %d", j);
            CHECK(fabsf(y[27 + j] - p.bias[j]) < 1e-30f, "denormal rows vanish: %g", (double)y[27 + j]);
        }
        free(y);
    }
    free_problem(&p);
}

static void the_extremes_do_not_overflow(format_id format, int32_t mode)
{
    int64_t n = 17, k = 512;
    problem p = make_problem(format, mode, 5, n, k);
    if (packing_of(&p) != H3K_PACKING_NONE && format_elements[format] > 1) {
        for (int64_t i = 0; i < 5 * k; i++)
            p.x[i] = i < 2 * k ? 1.0f : i % 2 ? 1.0f : -1.0f;
        int64_t size = format_bytes[format];
        for (int64_t b = 0; b < n * k / format_elements[format]; b++) {
            uint16_t one = half_bits(0, 15, 0);
            memset(p.w + b * size, b % 2 ? 0x80 : 0xff, (size_t)size);
            memcpy(p.w + b * size + scale_at[format], &one, 2);
            if (min_at[format] >= 0)
                memcpy(p.w + b * size + min_at[format], &one, 2);
        }
        float *y = blank_floats(5 * n);
        run(&p, H3K_ACTIVATION_NONE, 1, y, NULL, 0);
        double *x = rounded_rows(&p), *w = weight_rows(&p, p.w), worst = 0;
        for (int64_t i = 0; i < 5 * n; i++) {
            double value = (double)p.bias[i % n], magnitude = fabs(value);
            for (int64_t c = 0; c < k; c++) {
                value += x[i / n * k + c] * w[i % n * k + c];
                magnitude += fabs(x[i / n * k + c] * w[i % n * k + c]);
            }
            worst = fmax(worst, fabs((double)y[i] - value) / magnitude);
        }
        CHECK(worst < TOLERANCE, "%s: %s mode %d at the extremes: %g", h3k_isa_name(), format_names[format], (int)mode, worst);
        free(x), free(w), free(y);
    }
    free_problem(&p);
}

static void impossible_arguments_are_refused(void)
{
    problem p = make_problem(Q4_0, H3K_MODE_EXACT, 2, 4, 64);
    float y[8];
    h3k_matmul_args good = {.w = p.w, .y = y, .m = 2, .n = 4, .k = 64, .ldy = 4, .format = H3K_FORMAT_Q4_0,
                            .mode = H3K_MODE_EXACT}, a;
    good.call = open_call(sizeof good, 1, h3k_matmul_scratch_bytes(1));
    if (packing_of(&p) != H3K_PACKING_NONE) {
        void *packed = pack(p.x, 2, 64, packing_of(&p), 1);
        good.packed = packed;
        CHECK(h3k_matmul(&good) == H3K_OK, "the good arguments run");
        a = good, a.x = p.x;
        CHECK(h3k_matmul(&a) == H3K_BAD_ARGUMENT, "x beside packed");
        a = good, a.packed = NULL;
        CHECK(h3k_matmul(&a) == H3K_BAD_ARGUMENT, "neither");
        a = good, a.packing_y = H3K_PACKING_I8;
        CHECK(h3k_matmul(&a) == H3K_BAD_ARGUMENT, "a packing without packed_y");
        free(packed);
    }
    a = good, a.mode = 4;
    CHECK(h3k_matmul(&a) == H3K_BAD_ARGUMENT, "unknown mode");
    a = good, a.format = 99;
    CHECK(h3k_matmul(&a) == H3K_BAD_ARGUMENT, "unknown format");
    CHECK(h3k_packing(0, 9) == -1 && h3k_packing(-1, 0) == -1, "unknown numbers have no packing");
    close_call(&good.call);
    free_problem(&p);
}

static void integer_products_are_right(void)
{
    static const int64_t shapes[][2] = {{1, 1}, {4, 16}, {17, 65}, {6, 130}};
    for (int f = 0; f < FORMAT_COUNT; f++) {
        int64_t block = format_elements[f] == 1 ? 1 : format_elements[f];
        for (int32_t mode = H3K_MODE_NEAR; mode <= H3K_MODE_FAST; mode++) {
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                product_is_that_of_the_rounded_rows((format_id)f, mode, shapes[s][0], shapes[s][1],
                                                    block == 1 ? 259 : 3 * block);
            product_is_that_of_the_rounded_rows((format_id)f, mode, 3, 33, block == 1 ? 17 : 1024);
            threads_and_row_counts_change_no_bit((format_id)f, mode);
            the_extremes_do_not_overflow((format_id)f, mode);
        }
        for (int32_t packing = H3K_PACKING_I8; packing <= H3K_PACKING_I8X2; packing++)
            a_packed_result_is_the_packed_form_of_the_plain_one((format_id)f, H3K_MODE_EXACT, packing);
    }
    special_values_arrive();
    impossible_arguments_are_refused();
}

int main(void)
{
    with_every_isa(integer_products_are_right);
    return finish("integer");
}
