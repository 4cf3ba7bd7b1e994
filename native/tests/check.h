/* A small test harness: CHECK counts and reports, finish() prints the totals and gives the exit code.
 *
 * Everything random comes from one generator with a fixed seed, so a failure repeats.
 */
#ifndef H3K_TESTS_CHECK_H
#define H3K_TESTS_CHECK_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "h3k.h"

static int checks_passed, checks_failed;

#define CHECK(condition, ...) check_report((condition) != 0, __FILE__, __LINE__, __VA_ARGS__)

__attribute__((format(printf, 4, 5))) static inline void check_report(int fine, const char *file, int line,
                                                                      const char *format, ...)
{
    if (fine) {
        checks_passed++;
        return;
    }
    checks_failed++;
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

static inline int finish(const char *name)
{
    printf("%s: %d passed, %d failed\n", name, checks_passed, checks_failed);
    return checks_failed != 0;
}

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static inline uint32_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

/* Uniform in [-1, 1). */
static inline float random_float(void)
{
    return (float)(int32_t)random_bits() * 0x1p-31f;
}

static inline void *get_memory(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL) {
        fputs("out of memory\n", stderr);
        exit(2);
    }
    return memory;
}

static inline float *random_floats(int64_t count)
{
    float *values = get_memory((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = random_float();
    return values;
}

static inline float *copy_floats(const float *values, int64_t count)
{
    float *copy = get_memory((size_t)count * sizeof *copy);
    memcpy(copy, values, (size_t)count * sizeof *copy);
    return copy;
}

/* An output: every element NaN, so that one left unwritten is seen. */
static inline float *blank_floats(int64_t count)
{
    float *values = get_memory((size_t)count * sizeof *values);
    memset(values, 0xff, (size_t)count * sizeof *values);
    return values;
}

static inline int same_bits(const float *a, const float *b, int64_t count)
{
    return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

/* |got - expected| / |expected| over all elements. */
static inline double relative_error(const float *got, const double *expected, int64_t count)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)got[i] - expected[i];
        difference += d * d;
        size += expected[i] * expected[i];
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

/* The one instruction set to test, or null for all: set in the emulator, which has one thread and takes its time. */
static inline const char *only_isa(void)
{
    return getenv("VIGNETTE_TEST_ISA");
}

/* Runs the claims with every instruction set that this processor has, or with only_isa(), which it then must have. */
static inline void with_every_isa(void (*claims)(void))
{
    const char *name, *only = only_isa();
    if (only != NULL)
        CHECK(h3k_isa_choose(only) == H3K_OK, "%s is offered", only);
    for (int32_t i = 0; (name = h3k_isa_offered(i)) != NULL; i++) {
        if (only != NULL && strcmp(name, only) != 0)
            continue;
        CHECK(h3k_isa_choose(name) == H3K_OK && strcmp(h3k_isa_name(), name) == 0, "%s is chosen", name);
        claims();
    }
    CHECK(h3k_isa_choose(NULL) == H3K_OK && strcmp(h3k_isa_name(), h3k_isa_offered(0)) == 0, "null takes the fastest");
}

/* The head of a call: `threads` threads, scratch of exactly `scratch_bytes` filled with NaN, at an odd address. */
static inline h3k_call open_call(int64_t args_bytes, int32_t threads, int64_t scratch_bytes)
{
    h3k_call call = {.args_bytes = args_bytes};
    if (threads > 1)
        CHECK(h3k_pool_create(threads, &call.pool) == H3K_OK, "a pool of %d threads is made", (int)threads);
    if (scratch_bytes > 0) {
        uint8_t *memory = get_memory((size_t)scratch_bytes + 1);
        memset(memory, 0xff, (size_t)scratch_bytes + 1);
        call.scratch = memory + 1;
        call.scratch_bytes = scratch_bytes;
    }
    return call;
}

static inline void close_call(h3k_call *call)
{
    h3k_pool_destroy(call->pool);
    if (call->scratch != NULL)
        free((uint8_t *)call->scratch - 1);
    *call = (h3k_call){0};
}

#endif
