/* The parallel loop: every task once, cancelled between tasks, alone after fork.
 *
 * Tier: self-consistency. Cannot prove the absence of races; run it under -fsanitize=thread when the pool changes.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "call.h"
#include "check.h"

enum { TASKS = 1000 };

typedef struct {
    _Atomic int32_t runs[TASKS];
    _Atomic int32_t total, late, worker_faults; /* late: began with the flag already set */
    int32_t threads, stop_after;
    volatile int32_t cancel;
} tally;

static void count_task(const void *context, int64_t task, int32_t worker)
{
    tally *t = *(tally *const *)context;
    if (__atomic_load_n(&t->cancel, __ATOMIC_RELAXED))
        atomic_fetch_add(&t->late, 1);
    atomic_fetch_add(&t->runs[task], 1);
    if (worker < 0 || worker >= t->threads)
        atomic_fetch_add(&t->worker_faults, 1);
    if (atomic_fetch_add(&t->total, 1) + 1 == t->stop_after)
        __atomic_store_n(&t->cancel, 1, __ATOMIC_RELAXED);
}

static h3k_status run(h3k_pool *pool, tally *t, int64_t tasks)
{
    h3k_call call = {.args_bytes = sizeof call, .pool = pool, .cancel = &t->cancel};
    t->threads = h3k_pool_thread_count(pool);
    return h3k_parallel_for(&call, tasks, count_task, &t);
}

static void every_task_runs_once(int32_t threads)
{
    h3k_pool *pool = NULL;
    CHECK(h3k_pool_create(threads, &pool) == H3K_OK && h3k_pool_thread_count(pool) == threads, "the pool is made");
    for (int round = 0; round < 50; round++) {
        tally t = {0};
        CHECK(run(pool, &t, TASKS) == H3K_OK && t.total == TASKS && t.worker_faults == 0, "round %d", round);
        int once = 1;
        for (int i = 0; i < TASKS; i++)
            once &= t.runs[i] == 1;
        CHECK(once, "each task runs once on %d threads", (int)threads);
    }
    tally none = {0};
    CHECK(run(pool, &none, 0) == H3K_OK && none.total == 0, "no task, no run");
    h3k_pool_destroy(pool);
}

static void a_flag_set_midway_cancels(int32_t threads)
{
    h3k_pool *pool = NULL;
    h3k_pool_create(threads, &pool);
    tally t = {.stop_after = 10};
    CHECK(run(pool, &t, TASKS) == H3K_CANCELLED, "%d threads: cancelled", (int)threads);
    CHECK(t.late < threads, "%d threads: at most one late task on each other, %d ran", (int)threads, (int)t.late);
    tally next = {0};
    CHECK(run(pool, &next, TASKS) == H3K_OK && next.total == TASKS, "the pool works on after a cancel");
    h3k_pool_destroy(pool);
}

static void a_forked_child_runs_alone(void)
{
    h3k_pool *pool = NULL;
    h3k_pool_create(4, &pool);
    tally t = {0};
    run(pool, &t, TASKS);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        tally mine = {0};
        int fine = run(pool, &mine, TASKS) == H3K_OK && mine.total == TASKS;
        h3k_pool_destroy(pool);
        _exit(fine ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child ends well, status %d", status);
    h3k_pool_destroy(pool);
}

static void impossible_pools_are_refused(void)
{
    h3k_pool *pool = NULL;
    CHECK(h3k_pool_create(0, &pool) == H3K_BAD_ARGUMENT && h3k_pool_create(257, &pool) == H3K_BAD_ARGUMENT &&
              h3k_pool_create(1, NULL) == H3K_BAD_ARGUMENT && pool == NULL, "0 and 257 threads, null");
    CHECK(h3k_pool_thread_count(NULL) == 1, "no pool is one thread");
    h3k_pool_destroy(NULL);
}

static void every_status_has_a_name(void)
{
    CHECK(h3k_abi_version() == H3K_ABI_VERSION, "the version is that of the header");
    for (int32_t status = H3K_OK; status <= H3K_NO_MEMORY; status++)
        CHECK(strcmp(h3k_status_name(status), "unknown status") != 0, "status %d", (int)status);
    CHECK(strcmp(h3k_status_name(99), "unknown status") == 0, "status 99");
}

int main(void)
{
    for (int32_t threads = 1; threads <= 8; threads *= 2) {
        every_task_runs_once(threads);
        a_flag_set_midway_cancels(threads);
    }
    a_forked_child_runs_alone();
    impossible_pools_are_refused();
    every_status_has_a_name();
    return finish("thread_pool");
}
