/* The formats whose scales lie apart, element by element: the embedding entry against the formulas in float64.
 *
 * Tier: independent transcription. Cannot catch a misread of the published format; tests/native compares with torch.
 */
#include "codes.h"

#include "check.h"

enum { ROWS = 150, TOTAL = 300, FIRST = 97 };

/* (-1)^s 2^(e - bias) (1 + m / 2^bits), or m 2^(1 - bias - bits) where e is 0. */
static double small_float(int code, int exponent_bits, int bits, int bias)
{
    int mantissa = code % (1 << bits), exponent = code >> bits & ((1 << exponent_bits) - 1);
    double value = exponent > 0 ? ldexp(1 + ldexp(mantissa, -bits), exponent - bias) : ldexp(mantissa, 1 - bias - bits);
    return code >> (bits + exponent_bits) & 1 ? -value : value;
}

static double row_scale(const float *per_row, int64_t row, float scale)
{
    return (double)(float)((double)(per_row == NULL ? 1.0f : per_row[FIRST + row]) * (double)scale);
}

static double i8_value(const uint8_t *w, const void *scales, int64_t columns, int64_t row, int64_t column, float scale)
{
    return (int8_t)w[row * columns + column] * row_scale(scales, row, scale);
}

static double f8_value(const uint8_t *w, const void *scales, int64_t columns, int64_t row, int64_t column, float scale)
{
    return small_float(w[row * columns + column], 4, 3, 7) * row_scale(scales, row, scale);
}

/* Byte of the scale of (row, block) by counting: tiles of 128 x 4, inside a tile [row % 32][row / 32][block]. */
static double nvfp4_value(const uint8_t *w, const void *scales, int64_t columns, int64_t row, int64_t column, float scale)
{
    int64_t tiles = (columns / 16 + 3) / 4, r = FIRST + row, block = column / 16;
    const uint8_t *tile = (const uint8_t *)scales + (r / 128 * tiles + block / 4) * 512;
    float step = (float)(small_float(tile[(r % 32 * 4 + r % 128 / 32) * 4 + block % 4], 4, 3, 7) * (double)scale);
    int byte = w[row * (columns / 2) + column / 2];
    return small_float(column % 2 == 0 ? byte / 16 : byte % 16, 2, 1, 1) * (double)step;
}

typedef struct {
    const char *name;
    int32_t format;
    double (*value)(const uint8_t *, const void *, int64_t, int64_t, int64_t, float);
    int64_t columns, row_bytes, scales_bytes;
} scheme;

static const scheme schemes[] = {
    {"i8_row", H3K_FORMAT_I8_ROW, i8_value, 193, 193, TOTAL * 4},
    {"f8_e4m3", H3K_FORMAT_F8_E4M3, f8_value, 193, 193, TOTAL * 4},
    {"nvfp4", H3K_FORMAT_NVFP4, nvfp4_value, 144, 72, 3 * 3 * 512},
    {"nvfp4", H3K_FORMAT_NVFP4, nvfp4_value, 16, 8, 3 * 512},
};

static h3k_status unpack(const scheme *s, const uint8_t *table, const void *scales, float scale, float *y)
{
    int32_t ids[ROWS];
    for (int32_t i = 0; i < ROWS; i++)
        ids[i] = i;
    h3k_embedding_args a = {.call = open_call(sizeof a, 2, 0), .ids = ids, .table = table, .scales = scales,
                            .y = y, .rows = ROWS, .columns = s->columns, .table_rows = ROWS,
                            .scales_row = FIRST, .scale = scale, .format = s->format};
    h3k_status status = h3k_embedding(&a);
    close_call(&a.call);
    return status;
}

/* Random codes without NaN, random row scales or block scales. */
static void fill(const scheme *s, uint8_t *table, uint8_t *scales)
{
    int per_row = s->scales_bytes == TOTAL * 4;
    for (int64_t i = 0; i < ROWS * s->row_bytes; i++) {
        table[i] = (uint8_t)random_bits();
        if (s->value == f8_value && table[i] % 128 == 127)
            table[i] = 0;
    }
    for (int64_t i = 0; i < s->scales_bytes; i++)
        scales[i] = (uint8_t)(random_bits() % 127);
    for (int64_t i = 0; per_row && i < TOTAL; i++) {
        float own = random_float();
        memcpy(scales + 4 * i, &own, 4);
    }
}

static int64_t differing(const scheme *s, const uint8_t *table, const void *scales, float scale, const float *y)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < ROWS * s->columns; i++)
        wrong += y[i] != (float)s->value(table, scales, s->columns, i / s->columns, i % s->columns, scale);
    return wrong;
}

static void rows_unpack_exactly_at_any_address(const scheme *s)
{
    int64_t size = ROWS * s->row_bytes, count = ROWS * s->columns;
    uint8_t *table = get_memory((size_t)size), *scales = get_memory((size_t)s->scales_bytes);
    float *y = blank_floats(count), *again = blank_floats(count);
    fill(s, table, scales);
    CHECK(unpack(s, table, scales, 0.371f, y) == H3K_OK, "%s unpacks", s->name);
    CHECK(differing(s, table, scales, 0.371f, y) == 0, "%s, %d columns: elements differ", s->name, (int)s->columns);
    for (int offset = 1; offset < 4; offset++) {
        uint8_t *moved = get_memory((size_t)size + 4), *moved_scales = get_memory((size_t)s->scales_bytes + 4);
        memcpy(moved + offset, table, (size_t)size);
        memcpy(moved_scales + offset, scales, (size_t)s->scales_bytes);
        unpack(s, moved + offset, moved_scales + offset, 0.371f, again);
        CHECK(same_bits(y, again, count), "%s at byte offset %d gives the same", s->name, offset);
        free(moved), free(moved_scales);
    }
    h3k_status status = unpack(s, table, NULL, 0.371f, y);
    if (s->value == nvfp4_value)
        CHECK(status == H3K_BAD_ARGUMENT, "nvfp4 needs block scales");
    else
        CHECK(status == H3K_OK && differing(s, table, NULL, 0.371f, y) == 0, "%s with one scale for all", s->name);
    free(table), free(scales), free(y), free(again);
}

/* Chunks of a row of 320 columns: one whole, one that ends early. */
static void integer_forms_have_the_values(const h3k_format *format, const void *scales)
{
    enum { COLUMNS = 320 };
    uint8_t table[2 * COLUMNS];
    for (size_t i = 0; i < sizeof table; i++)
        table[i] = (uint8_t)random_bits();
    h3k_weight w = {.format = format, .data = table, .k = COLUMNS, .scales = {scales, FIRST, 0.371f}};
    int64_t wrong = 0;
    for (int64_t row = 0; row < 2; row++)
        for (int64_t start = 0; start < COLUMNS; start += H3K_CHUNK) {
            int64_t count = start == 0 ? H3K_CHUNK : COLUMNS - H3K_CHUNK;
            float values[H3K_CHUNK] = {0};
            h3k_codes codes;
            format->unpack(&w, row, start, count, values);
            h3k_codes_of(&w, row, start, count, &codes);
            for (int i = 0; i < H3K_CHUNK; i++) {
                int g = i / format->group, code = codes.q[i];
                wrong += values[i] != (float)((double)codes.scale[g] * code + (double)codes.bias[g]);
                wrong += format->code_bits < 8 && (code < 0 || code >= 1 << format->code_bits);
            }
        }
    CHECK(wrong == 0, "format %d: %d elements differ from their integer form", (int)format->id, (int)wrong);
}

static void every_f8_code_has_its_value(void)
{
    static const scheme row = {"f8_e4m3", H3K_FORMAT_F8_E4M3, f8_value, 256, 256, 0};
    uint8_t *table = get_memory(ROWS * 256);
    float *y = blank_floats(ROWS * 256);
    for (int i = 0; i < ROWS * 256; i++)
        table[i] = (uint8_t)i;
    CHECK(unpack(&row, table, NULL, 1.0f, y) == H3K_OK, "a table of all codes");
    int wrong = 0;
    for (int i = 0; i < 256; i++) {
        double expected = small_float(i, 4, 3, 7);
        wrong += i % 128 == 127 ? !isnan(y[i]) : (double)y[i] != expected || !signbit(y[i]) != !signbit(expected);
    }
    CHECK(wrong == 0, "%d of 256 codes are wrong", wrong);
    free(table), free(y);
}

static void impossible_arguments_are_refused(void)
{
    int32_t id = 0;
    uint8_t table[24] = {0}, scales[512] = {0};
    float y[24];
    h3k_embedding_args a = {.call = {.args_bytes = sizeof a}, .ids = &id, .table = table, .scales = scales,
                            .y = y, .rows = 1, .columns = 24, .table_rows = 1, .scale = 1,
                            .format = H3K_FORMAT_NVFP4};
    CHECK(h3k_embedding(&a) == H3K_BAD_ARGUMENT, "24 columns are no whole blocks");
    a.format = H3K_FORMAT_I8_ROW;
    CHECK(h3k_embedding(&a) == H3K_OK, "24 columns of bytes");
    a.scales_row = -1;
    CHECK(h3k_embedding(&a) == H3K_BAD_ARGUMENT, "a scale before the first");
    a.scales_row = 0, a.format = H3K_FORMAT_BF16, a.columns = 12;
    CHECK(h3k_embedding(&a) == H3K_BAD_ARGUMENT, "scales of a format that has none");
}

int main(void)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        rows_unpack_exactly_at_any_address(&schemes[i]);
    static uint8_t tiles[2 * 5 * 512];
    memset(tiles, 0x3c, sizeof tiles); /* 1.5 */
    tiles[5 * 512 / 2] = 0x29;
    integer_forms_have_the_values(&h3k_format_nvfp4, tiles);
    integer_forms_have_the_values(&h3k_format_i8_row, NULL);
    every_f8_code_has_its_value();
    impossible_arguments_are_refused();
    return finish("schemes");
}
