/* Attention against float64: float32 with every storage, mask and shape; integers of this processor's instruction sets.
 *
 * Tier: independent transcription of the equation. Cannot test the integers of an instruction set that is not here;
 * test_attention_vnni.c runs the source of one of them with portable products.
 */
#include "attention_claims.h"

#define TOLERANCE 2e-6 /* float32 sums of up to 300 terms */

static void causal_rows_do_not_look_ahead(void)
{
    shape s = {.rows = 230, .heads = 4, .kv_heads = 2, .head_dim = 20, .causal = 1}, head = s;
    int64_t count = s.rows * s.heads * s.head_dim;
    float *qkv = random_floats(s.rows * width_of(s)), *y = blank_floats(count), *again = blank_floats(count);
    run(s, qkv, 1, y);
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
    good.call = open_call(sizeof good, 1, h3k_attention_scratch_bytes(1, 8, 1, H3K_MODE_FLOAT, H3K_KV_F32));
    CHECK(h3k_attention(&good) == H3K_OK, "the good arguments run");
    a = good, a.head_dim = 6;
    CHECK(h3k_attention(&a) == H3K_BAD_ARGUMENT, "head_dim 6 is no multiple of 4");
    a = good, a.head_dim = 260;
    CHECK(h3k_attention(&a) == H3K_BAD_ARGUMENT, "head_dim above 256");
    a = good, a.kv_heads = 2;
    CHECK(h3k_attention(&a) == H3K_BAD_ARGUMENT, "two key heads for one query head");
    a = good, a.call.scratch_bytes--;
    CHECK(h3k_attention(&a) == H3K_BAD_SCRATCH, "one byte of scratch too few");
    a = good, a.window_rows = -1;
    CHECK(h3k_attention(&a) == H3K_BAD_ARGUMENT, "a window of negative frames");
    a = good, a.mode = H3K_MODE_FAST + 1;
    CHECK(h3k_attention(&a) == H3K_BAD_ARGUMENT, "an unknown mode");
    a = good, a.kv = H3K_KV_INT4 + 1;
    CHECK(h3k_attention(&a) == H3K_BAD_ARGUMENT, "an unknown storage");
    int32_t cancel = 1;
    a = good, a.call.cancel = &cancel;
    CHECK(h3k_attention(&a) == H3K_CANCELLED, "a set flag cancels");
    close_call(&good.call);
}

/* The products that an instruction set has for a mode, without causal. */
static const char *expected_path(const char *isa, int32_t mode)
{
    static const struct {
        const char *isa, *words, *bytes;
    } paths[] = {{"avx512vnni", "vpdpwssd", "vpdpbusd"}, {"avxvnni", "vpdpwssd", "vpdpbusd"}, {"avx2", "maddwd", "maddubs"},
                 {"i8mm", "float", "usmmla"}, {"dotprod", "float", "sdot"}};
    for (size_t i = 0; i < sizeof paths / sizeof *paths && mode != H3K_MODE_FLOAT; i++)
        if (strcmp(isa, paths[i].isa) == 0)
            return mode == H3K_MODE_NEAR ? paths[i].words : paths[i].bytes;
    return "float";
}

static void attention_is_right(void)
{
    static const shape shapes[] = {
        {1, 2, 1, 4, 0, 0, 0, 0, 0, 0}, {17, 4, 2, 12, 1, 0, 0, 0, 0, 0}, {63, 1, 1, 256, 0, 0, 0, 0, 0, 0},
        {65, 6, 3, 20, 1, 0, 0, 0, 0, 0}, {97, 3, 3, 100, 0, 0, 0, 0, 0, 0}, {193, 4, 1, 8, 1, 0, 1, 0, 0, 0},
        {193, 4, 1, 8, 1, 0, 2, 0, 0, 0}, {300, 1, 1, 64, 0, 0, 0, 0, 0, 0}, {193, 2, 1, 64, 1, 0, 0, 30, 20, 1},
        {150, 2, 1, 64, 1, 2, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        attention_is_close_to_float64(shapes[i]);
    causal_rows_do_not_look_ahead();
    special_scores_are_handled();
    for (int32_t mode = H3K_MODE_FLOAT; mode <= H3K_MODE_FAST; mode++) {
        const char *path = h3k_attention_path(mode, 0);
        CHECK(strcmp(path, expected_path(h3k_isa_name(), mode)) == 0, "%s, mode %d: %s", h3k_isa_name(), (int)mode, path);
        CHECK(strcmp(h3k_attention_path(mode, 1), "float") == 0, "causal attention is float");
        mode_is_right(mode);
    }
}

int main(void)
{
    with_every_isa(attention_is_right);
    impossible_arguments_are_refused();
    return finish("attention");
}
