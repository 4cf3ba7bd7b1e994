/* Calls too large to run whole: sparse buffers of many GiB, and a parallel loop that runs the last tiles only.
 *
 * A test that includes this takes the place of thread_pool.c (native.mk leaves it out for test_big_*). What the last
 * tiles read is written, the rest of a buffer stays an untouched page of zeros. Results are compared with the same
 * entry on the same data in small buffers: an index that wraps at 2^31 or 2^32 reads zeros or writes elsewhere.
 */
#ifndef H3K_TESTS_BIG_H
#define H3K_TESTS_BIG_H

#define _DEFAULT_SOURCE
#include <sys/mman.h>
#include <sys/resource.h>

#include "call.h"
#include "check.h"

#define MANY (((int64_t)1 << 31) + ((int64_t)1 << 24)) /* elements, enough for several tiles beyond 2^31 */

static int64_t last_tiles = 8;

h3k_status h3k_parallel_for(const h3k_call *call, int64_t tasks, h3k_task *run, const void *context)
{
    (void)call;
    for (int64_t task = tasks > last_tiles ? tasks - last_tiles : 0; task < tasks; task++)
        run(context, task, 0);
    return H3K_OK;
}

int32_t h3k_pool_thread_count(const h3k_pool *pool)
{
    (void)pool;
    return 1;
}

/* One address range serves every case: qemu keeps books on each page it ever mapped. */
#define ARENA_BYTES ((int64_t)80 << 30)
static uint8_t *arena;
static int64_t arena_used;

static inline void map_arena(int64_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (arena == NULL ? 0 : MAP_FIXED);
    void *at = mmap(arena, (size_t)bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == MAP_FAILED) {
        printf("skipped: the system maps no %lld bytes beyond its memory\n", (long long)bytes);
        exit(checks_failed != 0);
    }
    arena = at;
#ifdef MADV_NOHUGEPAGE
    madvise(at, (size_t)bytes, MADV_NOHUGEPAGE); /* a huge page would take 2 MiB for every row touched */
#endif
}

/* Zeros that take memory where they are written, until release_all(). */
static inline void *sparse(int64_t bytes)
{
    if (arena == NULL)
        map_arena(ARENA_BYTES);
    void *at = arena + arena_used;
    arena_used += h3k_ceil_div(bytes, 1 << 16) << 16;
    if (arena_used > ARENA_BYTES) {
        fprintf(stderr, "ARENA_BYTES is less than the %lld bytes of one case\n", (long long)arena_used);
        exit(2);
    }
    return at;
}

static inline void release_all(void)
{
    map_arena(arena_used);
    arena_used = 0;
}

static inline float *sparse_floats(int64_t count)
{
    return sparse(count * (int64_t)sizeof(float));
}

/* `count` floats, zero but for the last `given`. */
static inline float *ending_in(const float *last, int64_t given, int64_t count)
{
    float *values = sparse_floats(count);
    memcpy(values + count - given, last, (size_t)given * sizeof *values);
    return values;
}

/* Random values of one case, released with its mappings. */
static inline float *some_floats(int64_t count)
{
    float *values = sparse_floats(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = random_float();
    return values;
}

static inline h3k_call sparse_call(size_t args_bytes, int64_t scratch_bytes)
{
    h3k_call call = {.args_bytes = (int64_t)args_bytes, .scratch_bytes = scratch_bytes};
    if (scratch_bytes > 0)
        call.scratch = sparse(scratch_bytes);
    return call;
}

/* The last `count` of `big_count` floats are those of the small result, and not all zero. */
static inline void check_ends_match(const char *entry, const float *big, int64_t big_count, const float *small,
                                    int64_t small_count, int64_t count)
{
    const float *end = big + big_count - count;
    int differs = 0;
    for (int64_t i = 0; i < count; i++)
        differs |= end[i] != 0.0f;
    CHECK(differs && same_bits(end, small + small_count - count, count), "%s, %s: the end of %lld elements", entry,
          h3k_isa_name(), (long long)big_count);
    release_all();
}

static inline int finish_big(const char *name)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
    long long peak = usage.ru_maxrss;
#else
    long long peak = 1024LL * usage.ru_maxrss;
#endif
    CHECK(peak < 3LL << 29, "%lld bytes were resident", peak);
    return finish(name);
}

#endif
