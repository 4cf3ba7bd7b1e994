/* GFLOP/s of the products on one thread, by processor time: other load hardly disturbs it. The variants of the inner
 * products take turns.
 *
 * Usage: bench_matmul [m n k [format]]; without arguments every format in sizes of the small and the
 * released model.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "h3k.h"

typedef h3k_status matmul_function(const h3k_matmul_args *);

typedef struct {
    const char *name;
    matmul_function *run;
    int64_t block_elements, block_bytes;
} format;

static const format formats[] = {
    {"f32", h3k_matmul_f32, 1, 4},      {"f16", h3k_matmul_f16, 1, 2},      {"bf16", h3k_matmul_bf16, 1, 2},
    {"q8_0", h3k_matmul_q8_0, 32, 34}, {"q4_0", h3k_matmul_q4_0, 32, 18}, {"q4_1", h3k_matmul_q4_1, 32, 20},
    {"q5_0", h3k_matmul_q5_0, 32, 22}, {"q5_1", h3k_matmul_q5_1, 32, 24}, {"q2_k", h3k_matmul_q2_k, 256, 84},
    {"q3_k", h3k_matmul_q3_k, 256, 110}, {"q4_k", h3k_matmul_q4_k, 256, 144}, {"q5_k", h3k_matmul_q5_k, 256, 176},
    {"q6_k", h3k_matmul_q6_k, 256, 210},
};

static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best of rounds of 0.05 s or one call, about 0.3 s in all. */
static double best_seconds(const format *f, const h3k_matmul_args *a)
{
    double best = 1e9, spent = 0;
    while (spent < 0.3) {
        int64_t calls = 0;
        double start = processor_time(), elapsed = 0;
        for (; elapsed < 0.05; elapsed = processor_time() - start, calls++)
            f->run(a);
        spent += elapsed;
        best = elapsed / (double)calls < best ? elapsed / (double)calls : best;
    }
    return best;
}

/* Two-byte words 0x3001..0x30ff: as f16, bf16 or f32 small normal numbers, as scales and integers harmless ones. */
static void *filled(size_t bytes)
{
    uint8_t *memory = malloc(bytes);
    if (memory == NULL)
        exit(2);
    for (size_t i = 0; i < bytes; i++)
        memory[i] = i % 2 ? 0x30 : (uint8_t)(1 + rand() % 255);
    return memory;
}

static void measure(const format *f, int64_t m, int64_t n, int64_t k)
{
    size_t w_bytes = (size_t)(n * k / f->block_elements * f->block_bytes);
    h3k_matmul_args a = {.m = m, .n = n, .k = k, .ldy = n};
    float *x = filled((size_t)(m * k) * 4);
    for (int64_t i = 0; i < m * k; i++)
        x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    void *w = filled(w_bytes), *y = filled((size_t)(m * n) * 4);
    a.call = (h3k_call){.args_bytes = sizeof a, .scratch_bytes = h3k_matmul_scratch_bytes(1)};
    a.call.scratch = filled((size_t)a.call.scratch_bytes);
    a.x = x, a.w = w, a.y = y;
    const char *isa;
    for (int32_t i = 0; (isa = h3k_isa_offered(i)) != NULL; i++) {
        h3k_isa_choose(isa);
        double seconds = best_seconds(f, &a);
        printf("%-5s %-8s %5lld x %5lld x %5lld  %7.1f ms  %6.1f GFLOP/s\n", f->name, isa, (long long)m, (long long)n,
               (long long)k, 1e3 * seconds, 2e-9 * (double)(m * n * k) / seconds);
    }
    free(x), free(w), free(y), free(a.call.scratch);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    int64_t sizes[][3] = {{1, 5376, 5376}, {64, 768, 768}, {256, 256, 768}, {1024, 1344, 5376}};
    int64_t count = sizeof sizes / sizeof *sizes;
    if (argc >= 4) {
        for (int i = 0; i < 3; i++)
            sizes[0][i] = atoll(argv[i + 1]);
        count = 1;
    }
    for (int64_t s = 0; s < count; s++)
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
            if (argc < 5 || strcmp(argv[4], formats[f].name) == 0)
                measure(&formats[f], sizes[s][0], sizes[s][1], sizes[s][2]);
    return 0;
}
