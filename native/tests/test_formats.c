/* Every weight format, element by element: the embedding entries against the formulas in float64.
 *
 * Tier: independent transcription. Cannot catch a misread of the published format; tests/native compares with gguf.
 */
#include "weights.h"

typedef h3k_status embedding_function(const h3k_embedding_args *);

static embedding_function *const embeddings[FORMAT_COUNT] = {
    h3k_embedding_f32, h3k_embedding_f16, h3k_embedding_bf16, h3k_embedding_q8_0, h3k_embedding_q4_0, h3k_embedding_q4_k,
};

static h3k_status unpack(format_id format, const uint8_t *table, int64_t rows, int64_t columns, float *y)
{
    int32_t *ids = get_memory((size_t)rows * sizeof *ids);
    for (int32_t i = 0; i < rows; i++)
        ids[i] = i;
    h3k_embedding_args a = {.call = open_call(sizeof a, 2, 0), .ids = ids, .table = table, .y = y};
    a.rows = a.table_rows = rows;
    a.columns = columns;
    h3k_status status = embeddings[format](&a);
    close_call(&a.call);
    free(ids);
    return status;
}

static void rows_unpack_exactly_at_any_address(format_id format)
{
    enum { ROWS = 37 };
    int64_t columns = format_elements[format] == 1 ? 193 : 3 * format_elements[format];
    int64_t size = ROWS * row_bytes_of(format, columns);
    uint8_t *table = random_weights(format, ROWS, columns), *moved = get_memory((size_t)size + 8);
    float *y = blank_floats(ROWS * columns), *again = blank_floats(ROWS * columns);
    CHECK(unpack(format, table, ROWS, columns, y) == H3K_OK, "%s unpacks", format_names[format]);
    int64_t wrong = 0;
    for (int64_t i = 0; i < ROWS * columns; i++)
        wrong += (double)y[i] != weight_value(format, table, columns, i / columns, i % columns);
    CHECK(wrong == 0, "%s: %lld elements differ from the formula", format_names[format], (long long)wrong);
    for (int offset = 1; offset < 8; offset++) {
        memcpy(moved + offset, table, (size_t)size);
        unpack(format, moved + offset, ROWS, columns, again);
        CHECK(same_bits(y, again, ROWS * columns), "%s at byte offset %d gives the same", format_names[format], offset);
    }
    free(table), free(moved), free(y), free(again);
}

static void every_half_has_its_value(void)
{
    uint16_t *table = get_memory(65536 * 2);
    float *y = blank_floats(65536);
    for (uint32_t i = 0; i < 65536; i++)
        table[i] = (uint16_t)i;
    unpack(F16, (const uint8_t *)table, 256, 256, y);
    int wrong = 0;
    for (int i = 0; i < 65536; i++) {
        double expected = half_value((const uint8_t *)&table[i]);
        wrong += isnan(expected) ? !isnan(y[i]) : (double)y[i] != expected || !signbit(y[i]) != !signbit(expected);
    }
    CHECK(wrong == 0, "%d of 65536 halves are wrong", wrong);
    free(table), free(y);
}

static void rows_outside_the_span_are_left_alone(void)
{
    float table[2] = {5, 6}, y[3] = {-1, -1, -1};
    int32_t ids[3] = {9, 10, 12};
    h3k_embedding_args a = {.call = {.args_bytes = sizeof a}, .ids = ids, .table = table, .y = y, .rows = 3,
                            .columns = 1, .table_rows = 2, .first_row = 10};
    CHECK(h3k_embedding_f32(&a) == H3K_OK, "a span of the table is read");
    CHECK(y[0] == -1 && y[1] == 5 && y[2] == -1, "only rows 10 and 11 are written: %g %g %g", y[0], y[1], y[2]);
    a.columns = 31;
    CHECK(h3k_embedding_q8_0(&a) == H3K_BAD_ARGUMENT, "a row of 31 elements is no q8_0 row");
}

static void taken_rows_follow_the_index(void)
{
    float *x = random_floats(5 * 7), *y = blank_floats(4 * 7);
    int32_t index[4] = {4, 0, 0, 3};
    h3k_take_rows_args a = {.call = open_call(sizeof a, 2, 0), .x = x, .index = index, .y = y, .rows = 4, .columns = 7,
                            .x_rows = 5};
    CHECK(h3k_take_rows(&a) == H3K_OK, "rows are taken");
    for (int i = 0; i < 4; i++)
        CHECK(same_bits(y + 7 * i, x + 7 * index[i], 7), "row %d is row %d", i, (int)index[i]);
    index[2] = 5;
    CHECK(h3k_take_rows(&a) == H3K_BAD_ARGUMENT, "row 5 of 5 does not exist");
    index[2] = -1;
    CHECK(h3k_take_rows(&a) == H3K_BAD_ARGUMENT, "row -1 does not exist");
    close_call(&a.call);
    free(x), free(y);
}

int main(void)
{
    for (int format = 0; format < FORMAT_COUNT; format++)
        rows_unpack_exactly_at_any_address((format_id)format);
    every_half_has_its_value();
    rows_outside_the_span_are_left_alone();
    taken_rows_follow_the_index();
    return finish("formats");
}
