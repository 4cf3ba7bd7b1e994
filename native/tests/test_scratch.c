/* Slots of scratch: apart, aligned, inside the buffer, and forgotten between tiles where H3K_POISON is set.
 *
 * Tier: closed form. Two small kernels stand for all: one reads only what it wrote, the other relies on the tile
 * before. What a kernel keeps outside its slot is not seen.
 */
#undef H3K_POISON
#define H3K_POISON 1
#include "call.h"
#include "check.h"

enum { COUNT = 21, TILES = 3 };

typedef struct {
    void *scratch;
    float y[TILES];
    int clears;
} sums;

/* y[tile] = 0 + 1 + ... + 20; without `clears` the sums start from what the slot holds. */
static void add_up(const void *context, int64_t tile, int32_t worker)
{
    sums *s = *(sums *const *)context;
    float *slot = h3k_slot(s->scratch, COUNT * sizeof *slot, worker), total = 0;
    for (int i = 0; i < COUNT && (s->clears || tile == 0); i++)
        slot[i] = 0.0f;
    for (int i = 0; i < COUNT; i++)
        slot[i] += (float)i;
    for (int i = 0; i < COUNT; i++)
        total += slot[i];
    s->y[tile] = total;
}

static sums run(int clears)
{
    h3k_call call = open_call(sizeof call, 1, h3k_slots_bytes(COUNT * sizeof(float), 1));
    sums s = {.scratch = call.scratch, .clears = clears}, *context = &s;
    CHECK(h3k_parallel_for(&call, TILES, add_up, &context) == H3K_OK, "the tiles run");
    close_call(&call);
    return s;
}

static void a_tile_that_reads_the_last_one_becomes_nan(void)
{
    sums right = run(1), wrong = run(0);
    for (int i = 0; i < TILES; i++)
        CHECK(right.y[i] == 210.0f, "tile %d reads what it wrote: %g", i, right.y[i]);
    CHECK(wrong.y[0] == 210.0f && isnan(wrong.y[1]) && isnan(wrong.y[2]), "a slot not cleared: %g %g %g", wrong.y[0],
          wrong.y[1], wrong.y[2]);
}

static void slots_lie_apart_inside_the_buffer(void)
{
    enum { THREADS = 5 };
    int64_t bytes = h3k_slots_bytes(COUNT * sizeof(float), THREADS);
    h3k_call call = open_call(sizeof call, 1, bytes);
    uintptr_t start = (uintptr_t)call.scratch, free_from = start;
    for (int32_t worker = 0; worker < THREADS; worker++) {
        uintptr_t slot = (uintptr_t)h3k_slot(call.scratch, COUNT * sizeof(float), worker);
        CHECK(slot >= free_from && slot % H3K_SCRATCH_ALIGN == 0, "slot %d is aligned and after the last", (int)worker);
        free_from = slot + COUNT * sizeof(float);
    }
    CHECK(free_from <= start + (uintptr_t)bytes, "the last slot ends inside");
    close_call(&call);
}

int main(void)
{
    a_tile_that_reads_the_last_one_becomes_nan();
    slots_lie_apart_inside_the_buffer();
    return finish("scratch");
}
