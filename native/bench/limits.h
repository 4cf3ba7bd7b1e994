/* One row of the limit benchmark, and what its kernels share. */
#ifndef H3K_BENCH_LIMITS_H
#define H3K_BENCH_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* `run` repeats its loop n times over `memory` (MEMORY_BYTES, or NULL for a row that computes in registers) and returns
 * the operations, bytes or cycles that took; one multiply-add is two operations. */
typedef struct {
    const char *id, *name, *unit;
    bool (*offered)(void);
    double (*run)(int64_t n, char *memory);
    bool uses_memory;
} limit;

#define MEMORY_BYTES ((size_t)768 << 20) /* larger than the last cache */

/* Twelve independent sums hide a latency of six cycles at two instructions a cycle. */
#define EACH12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

/* Counts read and written bytes, not the reading of lines before they are overwritten. */
static double copy_memory(int64_t n, char *memory)
{
    for (int64_t r = 0; r < n; r++) {
        memcpy(memory + MEMORY_BYTES / 2, memory, MEMORY_BYTES / 2);
        __asm__ volatile("" : : "r"(memory) : "memory");
    }
    return (double)n * (double)MEMORY_BYTES;
}

#endif
