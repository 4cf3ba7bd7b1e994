/* Every weight format, element by element: the embedding entries against the formulas in float64.
 *
 * Tier: independent transcription. Cannot catch a misread of the published format; tests/native compares with gguf.
 */
#include "weights.h"

static h3k_status unpack(format_id format, const uint8_t *table, int64_t rows, int64_t columns, float *y)
{
    int32_t *ids = get_memory((size_t)rows * sizeof *ids);
    for (int32_t i = 0; i < rows; i++)
        ids[i] = i;
    h3k_embedding_args a = {.call = open_call(sizeof a, 2, 0), .ids = ids, .table = table, .y = y};
    a.rows = a.table_rows = rows;
    a.columns = columns;
    a.format = (int32_t)format;
    h3k_status status = h3k_embedding(&a);
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

/* High bits of an integer lie apart from its low ones: byte `at` + b / 8, bit b % 8. */
typedef struct {
    format_id format;
    int64_t at, bits;
    int weight_of_bit[2]; /* of even and of odd bits */
} high_bits;

/* The element that high bit b belongs to: bits in element order in blocks of 32, else one bit (or pair) per run of 32. */
static int64_t element_of_bit(const high_bits *h, int64_t b)
{
    if (format_elements[h->format] == 32)
        return b;
    int64_t byte = b / 8, bit = b % 8;
    return h->format == Q6_K ? byte / 32 * 128 + bit / 2 * 32 + byte % 32 : bit * 32 + byte;
}

static void a_high_bit_moves_its_element_alone(const high_bits *h)
{
    int64_t columns = format_elements[h->format];
    uint8_t block[256] = {0};
    float before[256], after[256];
    const uint16_t one = 0x3c00;
    memcpy(block + scale_at[h->format], &one, 2);
    if (h->format == Q3_K) /* scales of 33 - 32 */
        memset(block + 96, 0x11, 8), memset(block + 104, 0xaa, 4);
    if (h->format == Q5_K)
        memset(block + 4, 1, 12);
    if (h->format == Q6_K)
        memset(block + 192, 1, 16);
    unpack(h->format, block, 1, columns, before);
    int64_t wrong = 0;
    for (int64_t b = 0; b < h->bits; b++) {
        block[h->at + b / 8] ^= (uint8_t)(1 << b % 8);
        unpack(h->format, block, 1, columns, after);
        block[h->at + b / 8] ^= (uint8_t)(1 << b % 8);
        for (int64_t i = 0; i < columns; i++)
            wrong += after[i] - before[i] != (i == element_of_bit(h, b) ? (float)h->weight_of_bit[b % 2] : 0.0f);
    }
    CHECK(wrong == 0, "%s: %lld elements moved wrongly", format_names[h->format], (long long)wrong);
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
    CHECK(h3k_embedding(&a) == H3K_OK, "a span of the table is read");
    CHECK(y[0] == -1 && y[1] == 5 && y[2] == -1, "only rows 10 and 11 are written: %g %g %g", y[0], y[1], y[2]);
    a.columns = 31, a.format = H3K_FORMAT_Q8_0;
    CHECK(h3k_embedding(&a) == H3K_BAD_ARGUMENT, "a row of 31 elements is no q8_0 row");
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
    static const high_bits masks[] = {
        {Q5_0, 2, 32, {16, 16}},  {Q5_1, 4, 32, {16, 16}},    {Q3_K, 0, 256, {4, 4}},
        {Q5_K, 16, 256, {16, 16}}, {Q6_K, 128, 512, {16, 32}},
    };
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++)
        a_high_bit_moves_its_element_alone(&masks[i]);
    every_half_has_its_value();
    rows_outside_the_span_are_left_alone();
    taken_rows_follow_the_index();
    return finish("formats");
}
