/* What this machine can do at most: the yardstick that the kernels are measured against.
 *
 *   limits [--rounds N] [--json]    all rows, in bursts that take turns, so that other load hurts all of them alike
 *   limits --ask                    one burst of the row whose id each line of standard input names
 *
 * One thread is judged by its processor time, all threads by wall time; best and median of the rounds.
 */
#ifdef __linux__
#define _GNU_SOURCE
#include <sched.h>
#else
#define _DARWIN_C_SOURCE
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "limits.h"
#if defined(__x86_64__)
#include "limits_x86_64.h"
#elif defined(__aarch64__)
#include "limits_arm64.h"
#endif

#define BURST_SECONDS 0.06
enum { ROWS = sizeof limits_here / sizeof *limits_here, MAX_THREADS = 64, MAX_ROUNDS = 99 };

static char *memory_of[MAX_THREADS];
static int64_t repeats[ROWS];
static double samples[ROWS][2][MAX_ROUNDS];

static double clock_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- threads that start a burst together and wait for each other at its end */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int generation, running, threads;
    const limit *row;
    int64_t repeats;
    double done[MAX_THREADS], processor_seconds[MAX_THREADS];
} team = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void run_share(int thread)
{
    double start = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
    team.done[thread] = team.row->run(team.repeats, memory_of[thread]);
    team.processor_seconds[thread] = clock_seconds(CLOCK_THREAD_CPUTIME_ID) - start;
}

static void *work(void *argument)
{
    int thread = (int)(intptr_t)argument, seen = 0;
#ifdef __linux__
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET((size_t)thread, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
#endif
    for (;;) {
        pthread_mutex_lock(&team.mutex);
        while (team.generation == seen)
            pthread_cond_wait(&team.changed, &team.mutex);
        seen = team.generation;
        bool takes_part = thread < team.threads;
        pthread_mutex_unlock(&team.mutex);
        if (!takes_part)
            continue;
        run_share(thread);
        pthread_mutex_lock(&team.mutex);
        if (--team.running == 0)
            pthread_cond_broadcast(&team.changed);
        pthread_mutex_unlock(&team.mutex);
    }
    return NULL;
}

/* Rate of one burst, in 1e9 units a second; for the clock, the mean of the cores. */
static double burst(int row, int threads)
{
    pthread_mutex_lock(&team.mutex);
    team.row = &limits_here[row], team.repeats = repeats[row];
    team.threads = team.running = threads;
    team.generation++;
    double start = clock_seconds(CLOCK_MONOTONIC), done = 0;
    pthread_cond_broadcast(&team.changed);
    while (team.running > 0)
        pthread_cond_wait(&team.changed, &team.mutex);
    double seconds = threads == 1 ? team.processor_seconds[0] : clock_seconds(CLOCK_MONOTONIC) - start;
    for (int i = 0; i < threads; i++)
        done += team.done[i];
    pthread_mutex_unlock(&team.mutex);
    return (row == 0 ? done / threads : done) / seconds / 1e9;
}

static void start_threads(int threads)
{
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)(intptr_t)i) != 0)
            exit(2);
    }
}

static void give_memory(int threads)
{
    for (int i = 0; i < threads; i++)
        if (memory_of[i] == NULL) {
            void *memory = NULL;
            if (posix_memalign(&memory, (size_t)2 << 20, MEMORY_BYTES) != 0)
                exit(2);
            memset(memory, i + 1, MEMORY_BYTES);
            memory_of[i] = memory;
        }
}

/* Sets how often a row's loop runs in one burst. */
static void calibrate(int row)
{
    for (repeats[row] = 1;;) {
        burst(row, 1);
        double seconds = team.processor_seconds[0];
        if (seconds > BURST_SECONDS / 2)
            return;
        repeats[row] = seconds < 1e-4 ? repeats[row] * 16
                                      : (int64_t)((double)repeats[row] * BURST_SECONDS / seconds) + 1;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_table(int threads, int rounds)
{
    printf("%-28s %-8s | 1 thread best  median | %d threads best  median\n", "limit", "unit", threads);
    for (int i = 0; i < ROWS; i++)
        if (repeats[i] > 0)
            printf("%-28s %-8s | %13.2f %7.2f | %14.2f %7.2f\n", limits_here[i].name, limits_here[i].unit,
                   samples[i][0][rounds - 1], samples[i][0][rounds / 2], samples[i][1][rounds - 1],
                   samples[i][1][rounds / 2]);
}

static void print_json(int threads, int rounds)
{
    printf("{\"threads\": %d, \"rounds\": %d, \"rows\": {", threads, rounds);
    const char *between = "";
    for (int i = 0; i < ROWS; i++)
        if (repeats[i] > 0) {
            printf("%s\"%s\": {\"name\": \"%s\", \"unit\": \"%s\", \"best\": %.4f, \"median\": %.4f, \"all_best\": %.4f, "
                   "\"all_median\": %.4f}", between, limits_here[i].id, limits_here[i].name, limits_here[i].unit,
                   samples[i][0][rounds - 1], samples[i][0][rounds / 2], samples[i][1][rounds - 1],
                   samples[i][1][rounds / 2]);
            between = ", ";
        }
    printf("}}\n");
}

static void measure_all(int threads, int rounds)
{
    start_threads(threads);
    give_memory(threads);
    for (int i = 0; i < ROWS; i++)
        if (limits_here[i].offered())
            calibrate(i);
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < ROWS; i++)
            if (repeats[i] > 0) {
                samples[i][0][r] = burst(i, 1);
                samples[i][1][r] = burst(i, threads);
            }
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < 2; k++)
            qsort(samples[i][k], (size_t)rounds, sizeof(double), by_value);
}

/* One thread, not bound to a core; an id that is unknown or not offered is answered by "none". */
static void answer_questions(void)
{
    char line[128];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\r\n")] = 0;
        int row = 0;
        while (row < ROWS && (strcmp(limits_here[row].id, line) != 0 || !limits_here[row].offered()))
            row++;
        if (row == ROWS) {
            puts("none");
            continue;
        }
        if (limits_here[row].uses_memory)
            give_memory(1);
        team.row = &limits_here[row];
        for (repeats[row] += repeats[row] == 0;; repeats[row] *= 2) {
            team.repeats = repeats[row];
            run_share(0);
            if (team.processor_seconds[0] >= BURST_SECONDS / 2)
                break;
        }
        printf("%.4f\n", team.done[0] / team.processor_seconds[0] / 1e9);
    }
}

int main(int argc, char **argv)
{
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN), rounds = 9;
    bool json = false, ask = false;
    for (int i = 1; i < argc; i++) {
        json |= strcmp(argv[i], "--json") == 0;
        ask |= strcmp(argv[i], "--ask") == 0;
        if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            rounds = atoi(argv[++i]);
    }
    if (threads < 1 || rounds < 1 || rounds > MAX_ROUNDS)
        return 2;
    threads = threads > MAX_THREADS ? MAX_THREADS : threads;
    if (ask) {
        answer_questions();
        return 0;
    }
    measure_all(threads, rounds);
    (json ? print_json : print_table)(threads, rounds);
    return 0;
}
