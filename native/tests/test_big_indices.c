/* Rows, weights and tables beyond 2^31 elements and 2^32 bytes.
 *
 * Tier: self-consistency, the small call being held by the tests of each kernel. Cannot catch an index that overflows
 * on the first tiles of a call alone, nor one in the loop over tiles (the pool's is 64 bits wide by its type).
 */
#include "big.h"
#include "weights.h"

/* `rows` rows, the first in the last `given` of them. */
static uint8_t *weights_ending_in(const uint8_t *last, int64_t given, int64_t rows, int64_t row_bytes)
{
    uint8_t *weights = sparse(rows * row_bytes);
    memcpy(weights + (rows - given) * row_bytes, last, (size_t)(given * row_bytes));
    return weights;
}

/* packed_rows: three rows of 1024 for the integer product, or null. */
static void weights_beyond_4_gib(format_id format, const void *packed_rows)
{
    enum { M = 3, K = 1024, LAST = 70 };
    int64_t row_bytes = row_bytes_of(format, K), n = ((int64_t)1 << 32) / row_bytes + LAST + 1;
    uint8_t *last = random_weights(format, LAST, K);
    float *x = some_floats(M * K), *bias = some_floats(LAST), y[M * LAST];
    h3k_matmul_args small = {.call = sparse_call(sizeof small, h3k_matmul_scratch_bytes(1)), .x = x, .w = last,
                             .w_value = last, .bias = bias, .y = y, .m = M, .n = LAST, .k = K, .ldy = LAST,
                             .format = (int32_t)format, .activation = H3K_ACTIVATION_SWIGLU};
    if (packed_rows != NULL)
        small.x = NULL, small.packed = packed_rows, small.mode = H3K_MODE_EXACT;
    h3k_matmul_args big = small;
    big.n = big.ldy = n;
    big.w = big.w_value = weights_ending_in(last, LAST, n, row_bytes);
    big.bias = ending_in(bias, LAST, n);
    big.y = sparse_floats(M * n);
    CHECK(h3k_matmul(&small) == H3K_OK && h3k_matmul(&big) == H3K_OK, "%s runs", format_names[format]);
    for (int64_t i = 0; i < M - 1; i++)
        CHECK(same_bits(big.y + (i + 1) * n - LAST, y + i * LAST, LAST), "matmul_%s, row %d", format_names[format],
              (int)i);
    check_ends_match(format_names[format], big.y, M * n, y, M * LAST, LAST);
    free(last);
}

static void rows_of_x_and_y_beyond_2_31_elements(format_id format)
{
    enum { LAST = 37, N = 16, K = 8192, LDY = 8200 };
    int64_t m = MANY / K + LAST + 1;
    uint8_t *w = random_weights(format, N, K);
    float *x = some_floats(LAST * K), *y = sparse_floats(LAST * LDY);
    h3k_matmul_args small = {.call = sparse_call(sizeof small, h3k_matmul_scratch_bytes(1)), .x = x, .w = w, .y = y,
                             .m = LAST, .n = N, .k = K, .ldy = LDY, .format = (int32_t)format};
    h3k_matmul_args big = small;
    big.m = m;
    big.x = ending_in(x, LAST * K, m * K);
    big.y = sparse_floats(m * LDY);
    CHECK(h3k_matmul(&small) == H3K_OK && h3k_matmul(&big) == H3K_OK, "%s runs", format_names[format]);
    check_ends_match("matmul", big.y, m * LDY, y, LAST * LDY, LAST * LDY);
    free(w);
}

static void rows_of_y_4_gib_apart(void)
{
    enum { M = 7, N = 5, K = 33 };
    int64_t ldy = ((int64_t)1 << 30) + 5;
    float *x = some_floats(M * K), *w = some_floats(N * K), y[M * N];
    h3k_matmul_args small = {.call = sparse_call(sizeof small, h3k_matmul_scratch_bytes(1)), .x = x, .w = w, .y = y,
                             .m = M, .n = N, .k = K, .ldy = N};
    h3k_matmul_args big = small;
    big.ldy = ldy;
    big.y = sparse_floats(M * ldy);
    CHECK(h3k_matmul(&small) == H3K_OK && h3k_matmul(&big) == H3K_OK, "rows 4 GiB apart");
    for (int64_t i = 0; i < M; i++)
        CHECK(same_bits(big.y + i * ldy, y + i * N, N), "row %d", (int)i);
    release_all();
}

static void integer_weights_beyond_4_gib(void)
{
    enum { M = 3, K = 1024 };
    int32_t packing = h3k_packing(H3K_FORMAT_Q4_K, H3K_MODE_EXACT);
    if (packing == H3K_PACKING_NONE)
        return;
    float *x = random_floats(M * K);
    void *packed = aligned_alloc(64, (size_t)h3k_packed_bytes(M, K, packing));
    h3k_pack_rows_args a = {.call = {.args_bytes = sizeof a}, .x = x, .packed = packed, .rows = M, .columns = K,
                            .packing = packing};
    CHECK(h3k_pack_rows(&a) == H3K_OK, "the rows pack");
    weights_beyond_4_gib(Q4_K, packed);
    free(x), free(packed);
}

/* More than 2^32 bytes of packed rows, by either packing; `mode` says which one q8_0 takes. */
static void packed_rows_beyond_4_gib(int32_t mode)
{
    enum { LAST = 37, N = 16, K = 8192 };
    int32_t packing = h3k_packing(Q8_0, mode);
    int64_t m = 2 * MANY / K + LAST;
    if (packing == H3K_PACKING_NONE)
        return;
    uint8_t *w = random_weights(Q8_0, N, K);
    float *x = some_floats(LAST * K), y[LAST * N];
    h3k_pack_rows_args small_pack = {.call = sparse_call(sizeof small_pack, 0), .x = x, .rows = LAST, .columns = K,
                                     .packed = sparse(h3k_packed_bytes(LAST, K, packing)), .packing = packing};
    h3k_pack_rows_args big_pack = small_pack;
    big_pack.x = ending_in(x, LAST * K, m * K), big_pack.rows = m;
    big_pack.packed = sparse(h3k_packed_bytes(m, K, packing));
    CHECK(h3k_pack_rows(&small_pack) == H3K_OK && h3k_pack_rows(&big_pack) == H3K_OK, "mode %d packs", (int)mode);
    h3k_matmul_args small = {.call = sparse_call(sizeof small, h3k_matmul_scratch_bytes(1)),
                             .packed = small_pack.packed, .w = w, .y = y, .m = LAST, .n = N, .k = K, .ldy = N,
                             .format = Q8_0, .mode = mode};
    h3k_matmul_args big = small;
    big.packed = big_pack.packed, big.m = m, big.y = sparse_floats(m * N);
    CHECK(h3k_matmul(&small) == H3K_OK && h3k_matmul(&big) == H3K_OK, "mode %d runs", (int)mode);
    check_ends_match("packed rows", big.y, m * N, y, LAST * N, LAST * N);
    free(w);
}

static void products_reach_far(void)
{
    for (int32_t mode = H3K_MODE_NEAR; mode <= H3K_MODE_FAST; mode++)
        packed_rows_beyond_4_gib(mode);
    for (format_id format = F32; format < FORMAT_COUNT; format++)
        weights_beyond_4_gib(format, NULL);
    integer_weights_beyond_4_gib();
    rows_of_x_and_y_beyond_2_31_elements(F32);
    rows_of_x_and_y_beyond_2_31_elements(Q8_0);
    rows_of_y_4_gib_apart();
}

static void tables_beyond_4_gib(format_id format)
{
    enum { LAST = 5, COLUMNS = 512, FIRST = 1000 };
    int64_t row_bytes = row_bytes_of(format, COLUMNS), table_rows = ((int64_t)1 << 32) / row_bytes + LAST + 1;
    uint8_t *last = random_weights(format, LAST, COLUMNS);
    int64_t rows = MANY / COLUMNS + LAST;
    float small_y[LAST * COLUMNS];
    int32_t small_ids[LAST] = {4, 0, 3, 2, 1}, *ids = sparse(rows * (int64_t)sizeof *ids);
    for (int64_t i = 0; i < LAST; i++)
        ids[rows - LAST + i] = (int32_t)(FIRST + table_rows - LAST + small_ids[i]);
    h3k_embedding_args small = {.call = sparse_call(sizeof small, 0), .ids = small_ids, .table = last, .y = small_y,
                                .rows = LAST, .columns = COLUMNS, .table_rows = LAST, .format = (int32_t)format};
    h3k_embedding_args big = small;
    big.table = weights_ending_in(last, LAST, table_rows, row_bytes);
    big.ids = ids, big.rows = rows, big.first_row = FIRST, big.table_rows = table_rows;
    big.y = sparse_floats(rows * COLUMNS);
    CHECK(h3k_embedding(&small) == H3K_OK && h3k_embedding(&big) == H3K_OK, "%s runs", format_names[format]);
    check_ends_match(format_names[format], big.y, rows * COLUMNS, small_y, LAST * COLUMNS, LAST * COLUMNS);
    free(last);
}

/* What the kernels over rows share: LAST rows of x, and the big sizes that end in them. */
enum { LAST = 5, COLUMNS = 4096, SLOTS = 3 };
static const int64_t rows = MANY / COLUMNS + LAST;

static void rows_are_taken_from_afar(void)
{
    float *x = some_floats(LAST * COLUMNS), *y = sparse_floats(LAST * COLUMNS);
    int32_t small_index[LAST] = {1, 4, 0, 2, 2}, *index = sparse(rows * (int64_t)sizeof *index);
    for (int64_t i = 0; i < LAST; i++)
        index[rows - LAST + i] = (int32_t)(rows - LAST) + small_index[i];
    h3k_take_rows_args small = {.call = sparse_call(sizeof small, 0), .x = x, .index = small_index, .y = y,
                                .rows = LAST, .columns = COLUMNS, .x_rows = LAST};
    h3k_take_rows_args big = small;
    big.x = ending_in(x, LAST * COLUMNS, rows * COLUMNS);
    big.index = index, big.rows = big.x_rows = rows, big.y = sparse_floats(rows * COLUMNS);
    CHECK(h3k_take_rows(&small) == H3K_OK && h3k_take_rows(&big) == H3K_OK, "take_rows runs");
    check_ends_match("take_rows", big.y, rows * COLUMNS, y, LAST * COLUMNS, LAST * COLUMNS);
}

static void norms_reach_far(void)
{
    float *x = some_floats(LAST * COLUMNS), *y = sparse_floats(LAST * COLUMNS), *weight = some_floats(COLUMNS);
    h3k_layer_norm_args small = {.call = sparse_call(sizeof small, 0), .x = x, .weight = weight, .bias = weight, .y = y,
                                 .rows = LAST, .columns = COLUMNS, .eps = 1e-6};
    h3k_layer_norm_args big = small;
    big.x = ending_in(x, LAST * COLUMNS, rows * COLUMNS);
    big.y = sparse_floats(rows * COLUMNS), big.rows = rows;
    CHECK(h3k_layer_norm(&small) == H3K_OK && h3k_layer_norm(&big) == H3K_OK, "layer_norm runs");
    CHECK(same_bits(big.y + (rows - LAST) * COLUMNS, y, LAST * COLUMNS), "layer_norm: the end");
    h3k_rms_norm_args small_rms = {.call = sparse_call(sizeof small_rms, 0), .x = x, .weight = weight, .y = y,
                                   .rows = LAST, .columns = COLUMNS, .eps = 1e-6};
    h3k_rms_norm_args big_rms = small_rms;
    big_rms.x = big.x, big_rms.y = big.y, big_rms.rows = rows;
    CHECK(h3k_rms_norm(&small_rms) == H3K_OK && h3k_rms_norm(&big_rms) == H3K_OK, "rms_norm runs");
    check_ends_match("rms_norm", big.y, rows * COLUMNS, y, LAST * COLUMNS, LAST * COLUMNS);
}

/* A table of more than 2^31 elements too, and entries at its end. */
static void modulation_reaches_far(void)
{
    int64_t entries = MANY / (SLOTS * COLUMNS) + LAST;
    float *x = some_floats(LAST * COLUMNS), *y = sparse_floats(LAST * COLUMNS);
    float *last = some_floats(LAST * SLOTS * COLUMNS);
    int32_t small_index[LAST] = {4, 1, 0, 3, 2}, *index = sparse(rows * (int64_t)sizeof *index);
    for (int64_t i = 0; i < LAST; i++)
        index[rows - LAST + i] = (int32_t)(entries - LAST) + small_index[i];
    h3k_norm_modulate_args small = {.call = sparse_call(sizeof small, 0), .x = x, .table = last, .y = y,
                                    .row_index = small_index, .rows = LAST, .columns = COLUMNS, .entries = LAST,
                                    .slots = SLOTS, .shift_slot = 2, .scale_slot = 1, .eps = 1e-6};
    h3k_norm_modulate_args big = small;
    float *far_x = ending_in(x, LAST * COLUMNS, rows * COLUMNS);
    big.x = far_x, big.y = sparse_floats(rows * COLUMNS), big.rows = rows;
    big.table = ending_in(last, LAST * SLOTS * COLUMNS, entries * SLOTS * COLUMNS);
    big.row_index = index, big.entries = entries;
    CHECK(h3k_norm_modulate(&small) == H3K_OK && h3k_norm_modulate(&big) == H3K_OK, "norm_modulate runs");
    CHECK(same_bits(big.y + (rows - LAST) * COLUMNS, y, LAST * COLUMNS), "norm_modulate: the end");
    h3k_gated_residual_args small_gate = {.call = sparse_call(sizeof small_gate, 0), .h = y, .y = x, .table = last,
                                          .row_index = small_index, .rows = LAST, .columns = COLUMNS, .entries = LAST,
                                          .slots = SLOTS, .gate_slot = 2};
    h3k_gated_residual_args big_gate = small_gate;
    big_gate.h = big.y, big_gate.y = big.x, big_gate.table = big.table, big_gate.row_index = index;
    big_gate.rows = rows, big_gate.entries = entries;
    CHECK(h3k_gated_residual(&small_gate) == H3K_OK && h3k_gated_residual(&big_gate) == H3K_OK, "gated_residual runs");
    CHECK(same_bits(big.y + (rows - LAST) * COLUMNS, y, LAST * COLUMNS), "gated_residual: the end");
    h3k_gated_residual_norm_args small_both = {
        .call = sparse_call(sizeof small_both, 0), .h = y, .y = x, .table = last, .norm_table = last,
        .row_index = small_index, .normed = x, .rows = LAST, .columns = COLUMNS, .entries = LAST, .slots = SLOTS,
        .gate_slot = 0, .shift_slot = 2, .scale_slot = 1, .eps = 1e-6};
    h3k_gated_residual_norm_args big_both = small_both;
    big_both.h = big.y, big_both.y = big_both.normed = far_x, big_both.table = big_both.norm_table = big.table;
    big_both.row_index = index, big_both.rows = rows, big_both.entries = entries;
    CHECK(h3k_gated_residual_norm(&small_both) == H3K_OK && h3k_gated_residual_norm(&big_both) == H3K_OK, "it runs");
    CHECK(same_bits(big.y + (rows - LAST) * COLUMNS, y, LAST * COLUMNS), "gated_residual_norm: the end");
    CHECK(same_bits(far_x + (rows - LAST) * COLUMNS, x, LAST * COLUMNS), "gated_residual_norm: the end of normed");
    h3k_scaled_residual_args small_scale = {.call = sparse_call(sizeof small_scale, 0), .h = y, .y = x, .rows = LAST,
                                            .columns = COLUMNS, .scale = 0.3f};
    h3k_scaled_residual_args big_scale = small_scale;
    big_scale.h = big.y, big_scale.y = big.x, big_scale.rows = rows;
    CHECK(h3k_scaled_residual(&small_scale) == H3K_OK && h3k_scaled_residual(&big_scale) == H3K_OK, "residual runs");
    check_ends_match("scaled_residual", big.y, rows * COLUMNS, y, LAST * COLUMNS, LAST * COLUMNS);
}

static void rows_are_mixed_afar(void)
{
    float *x = some_floats(LAST * COLUMNS), *y = sparse_floats(LAST * COLUMNS);
    h3k_rotate_rows_args small = {.call = sparse_call(sizeof small, 0), .x = x, .pre_scale = x, .y = y, .rows = LAST,
                                  .columns = COLUMNS, .group = 256};
    h3k_rotate_rows_args big = small;
    big.x = ending_in(x, LAST * COLUMNS, rows * COLUMNS), big.y = sparse_floats(rows * COLUMNS), big.rows = rows;
    CHECK(h3k_rotate_rows(&small) == H3K_OK && h3k_rotate_rows(&big) == H3K_OK, "rotate_rows runs");
    check_ends_match("rotate_rows", big.y, rows * COLUMNS, y, LAST * COLUMNS, LAST * COLUMNS);
}

static void swiglu_counts_far(void)
{
    int64_t given = 100, count = MANY + given;
    float *gate = some_floats(given), *value = some_floats(given), *y = sparse_floats(given);
    h3k_swiglu_args small = {.call = sparse_call(sizeof small, 0), .gate = gate, .value = value, .y = y,
                             .count = given};
    h3k_swiglu_args big = small;
    big.gate = ending_in(gate, given, count), big.value = ending_in(value, given, count);
    big.y = sparse_floats(count), big.count = count;
    CHECK(h3k_swiglu(&small) == H3K_OK && h3k_swiglu(&big) == H3K_OK, "swiglu runs");
    check_ends_match("swiglu", big.y, count, y, given, given);
}

static void heads_are_rotated_afar(void)
{
    enum { HEADS = 1, GROUPS = 1, DIM = 128, HALF = 64, WIDTH = (HEADS + 2 * GROUPS) * DIM };
    float *qkv = some_floats(LAST * WIDTH), *angles = some_floats(LAST * HALF), *weight = some_floats(DIM);
    int64_t many_rows = MANY / HALF + LAST; /* also more than 2^31 angles */
    float *big_qkv = ending_in(qkv, LAST * WIDTH, many_rows * WIDTH);
    h3k_qk_norm_rope_args small = {.call = sparse_call(sizeof small, 0), .qkv = qkv, .q_weight = weight,
                                   .k_weight = weight, .cos = angles, .sin = angles, .rows = LAST, .heads = HEADS,
                                   .kv_heads = GROUPS, .head_dim = DIM, .half = HALF, .eps = 1e-6};
    h3k_qk_norm_rope_args big = small;
    big.qkv = big_qkv, big.rows = many_rows;
    big.cos = big.sin = ending_in(angles, LAST * HALF, many_rows * HALF);
    CHECK(h3k_qk_norm_rope(&small) == H3K_OK && h3k_qk_norm_rope(&big) == H3K_OK, "qk_norm_rope runs");
    check_ends_match("qk_norm_rope", big_qkv, many_rows * WIDTH, qkv, LAST * WIDTH, LAST * WIDTH);
}

/* The last query head of many, its keys and values. Few rows, far apart: each touches a page in four places. */
static void attention_reaches_far(void)
{
    enum { DIM = 64, ROWS = 130, TAIL = 90 };
    int64_t groups = 66000, heads = 4 * groups, width = (heads + 2 * groups) * DIM;
    float *qkv = some_floats(ROWS * 3 * DIM), *y = sparse_floats(ROWS * DIM);
    float *big_qkv = sparse_floats(ROWS * width), *big_y = sparse_floats(ROWS * heads * DIM);
    for (int64_t r = 0; r < ROWS; r++) {
        const int64_t ends[3] = {heads, heads + groups, heads + 2 * groups};
        for (int part = 0; part < 3; part++)
            memcpy(big_qkv + r * width + (ends[part] - 1) * DIM, qkv + (r * 3 + part) * DIM, DIM * sizeof *qkv);
    }
    int64_t scratch_bytes = h3k_attention_scratch_bytes(ROWS, DIM, 1, H3K_MODE_FLOAT, H3K_KV_F32);
    h3k_attention_args small = {.call = sparse_call(sizeof small, scratch_bytes), .qkv = qkv, .y = y, .rows = ROWS, .heads = 1, .kv_heads = 1, .head_dim = DIM, .causal = 1};
    h3k_attention_args big = small;
    big.qkv = big_qkv, big.y = big_y, big.heads = heads, big.kv_heads = groups;
    last_tiles = 24; /* of queries, or of keys where those have tiles of their own */
    CHECK(h3k_attention(&small) == H3K_OK && h3k_attention(&big) == H3K_OK, "attention runs");
    last_tiles = 8;
    for (int64_t r = ROWS - TAIL; r < ROWS; r++)
        CHECK(same_bits(big_y + (r + 1) * heads * DIM - DIM, y + r * DIM, DIM), "attention, row %d", (int)r);
    check_ends_match("attention", big_y, ROWS * heads * DIM, y, ROWS * DIM, DIM);
}

static void rows_reach_far(void)
{
    for (format_id format = F32; format < FORMAT_COUNT; format++)
        tables_beyond_4_gib(format);
    rows_are_taken_from_afar();
    norms_reach_far();
    modulation_reaches_far();
    rows_are_mixed_afar();
    swiglu_counts_far();
    heads_are_rotated_afar();
}

int main(void)
{
    with_every_isa(products_reach_far);
    with_every_isa(attention_reaches_far);
    with_every_isa(rows_reach_far);
    return finish_big("big_indices");
}
