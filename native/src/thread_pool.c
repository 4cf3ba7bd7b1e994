/* A pool of threads that claims tiles from one counter. Which worker runs a tile changes nothing in its result.
 *
 * The trap: fork() copies the pool but not its threads. The owner's process id is kept, and in another process a loop runs
 * on the calling thread alone instead of waiting for workers that do not exist.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "call.h"

#define MAX_THREADS 256

typedef struct {
    h3k_pool *pool;
    pthread_t thread;
    int32_t index;
} worker;

typedef struct {
    const h3k_call *call;
    int64_t tasks;
    h3k_task *run;
    const void *context;
} loop;

struct h3k_pool {
    pthread_mutex_t lock;
    pthread_cond_t work_ready, work_done;
    loop loop;
    _Atomic int64_t next_task;
    _Atomic int32_t cancelled;
    uint64_t generation; /* of the loop, under lock */
    int32_t busy;        /* workers still in the loop, under lock */
    int32_t started;     /* worker threads running, without the caller */
    int32_t stopping;
    int32_t threads;
    pid_t owner;
    worker workers[];
};

static bool is_cancelled(const h3k_call *call)
{
    return call->cancel != NULL && __atomic_load_n(call->cancel, __ATOMIC_RELAXED) != 0;
}

static void run_tasks(h3k_pool *pool, const loop *l, int32_t index)
{
    for (;;) {
        int64_t task = atomic_fetch_add_explicit(&pool->next_task, 1, memory_order_relaxed);
        if (task >= l->tasks)
            return;
        if (is_cancelled(l->call)) {
            atomic_store_explicit(&pool->cancelled, 1, memory_order_relaxed);
            return;
        }
        l->run(l->context, task, index);
    }
}

static void *worker_main(void *argument)
{
    const worker *self = argument;
    h3k_pool *pool = self->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->generation == seen && !pool->stopping)
            pthread_cond_wait(&pool->work_ready, &pool->lock);
        if (pool->stopping)
            break;
        seen = pool->generation;
        loop current = pool->loop;
        pthread_mutex_unlock(&pool->lock);
        run_tasks(pool, &current, self->index);
        pthread_mutex_lock(&pool->lock);
        if (--pool->busy == 0)
            pthread_cond_signal(&pool->work_done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* A thread the system refuses is done without: the loop runs on those that started. */
static void start_workers(h3k_pool *pool)
{
    pool->owner = getpid();
    for (int32_t i = 0; i < pool->threads - 1; i++) {
        worker *w = &pool->workers[i];
        w->pool = pool;
        w->index = i + 1;
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0)
            break;
        pool->started++;
    }
}

static h3k_status run_alone(const loop *l)
{
    for (int64_t task = 0; task < l->tasks; task++) {
        if (is_cancelled(l->call))
            return H3K_CANCELLED;
        l->run(l->context, task, 0);
    }
    return H3K_OK;
}

static h3k_status run_together(h3k_pool *pool, const loop *l)
{
    atomic_store(&pool->next_task, 0);
    atomic_store(&pool->cancelled, 0);
    pthread_mutex_lock(&pool->lock);
    pool->loop = *l;
    pool->busy = pool->started;
    pool->generation++;
    pthread_cond_broadcast(&pool->work_ready);
    pthread_mutex_unlock(&pool->lock);
    run_tasks(pool, l, 0);
    pthread_mutex_lock(&pool->lock);
    while (pool->busy > 0)
        pthread_cond_wait(&pool->work_done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    return atomic_load(&pool->cancelled) ? H3K_CANCELLED : H3K_OK;
}

h3k_status h3k_parallel_for(const h3k_call *call, int64_t tasks, h3k_task *run, const void *context)
{
    loop l = {.call = call, .tasks = tasks, .run = run, .context = context};
    h3k_pool *pool = call->pool;
    if (is_cancelled(call))
        return H3K_CANCELLED;
    if (pool == NULL || pool->threads == 1 || tasks <= 1)
        return run_alone(&l);
    if (pool->owner == 0)
        start_workers(pool);
    if (pool->owner != getpid() || pool->started == 0)
        return run_alone(&l);
    return run_together(pool, &l);
}

h3k_status h3k_pool_create(int32_t threads, h3k_pool **pool)
{
    if (pool == NULL || threads < 1 || threads > MAX_THREADS)
        return H3K_BAD_ARGUMENT;
    h3k_pool *made = calloc(1, sizeof *made + (size_t)threads * sizeof(worker));
    if (made == NULL)
        return H3K_NO_MEMORY;
    made->threads = threads;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->work_ready, NULL);
    pthread_cond_init(&made->work_done, NULL);
    *pool = made;
    return H3K_OK;
}

void h3k_pool_destroy(h3k_pool *pool)
{
    if (pool == NULL)
        return;
    if (pool->owner == getpid()) {
        pthread_mutex_lock(&pool->lock);
        pool->stopping = 1;
        pthread_cond_broadcast(&pool->work_ready);
        pthread_mutex_unlock(&pool->lock);
        for (int32_t i = 0; i < pool->started; i++)
            pthread_join(pool->workers[i].thread, NULL);
        pthread_cond_destroy(&pool->work_done);
        pthread_cond_destroy(&pool->work_ready);
        pthread_mutex_destroy(&pool->lock);
    }
    free(pool);
}

int32_t h3k_pool_thread_count(const h3k_pool *pool)
{
    return pool == NULL ? 1 : pool->threads;
}
