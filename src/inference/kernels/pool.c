/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pool.h"

#include "base/clock.h"

#include <assert.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_NS 20000        /* about the pause between two matrices of a layer */
#define SPIN_NS_CROWDED 1000 /* more threads than cores: another thread needs this core */
#define SPINS_BETWEEN_CLOCKS 64

/* The ticket holds the job's number (high half) and the number of its tasks that are not taken yet
 * (low half). A worker reads the job's fields, then takes a task by compare-and-swap on the whole
 * ticket. Its success proves that this job is still running, because a job's fields change only
 * after its last task has ended.
 *
 * Invariant: (1) task, context and task_count change only while ticket's low half is 0 and
 *     ended == task_count.
 * (2) A sleeper counts itself in `sleepers` before it looks at the ticket for the last time, and
 * pool_run changes `wake_word` before it reads `sleepers`: one of them sees the other. */
struct pool {
    _Atomic uint64_t ticket;
    _Atomic(pool_task_fn) task;
    _Atomic(void *) context;
    _Atomic uint32_t task_count;
    _Alignas(64) _Atomic uint32_t ended; /* tasks of the job that have ended */
    _Atomic uint32_t caller_sleeps;
    _Alignas(64) _Atomic uint32_t wake_word;
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    uint32_t job; /* the caller's own */
    uint32_t threads;
    int64_t spin_ns;
    uint32_t started;
    pthread_t *handles; /* (threads - 1) */
    struct pool_worker *workers;
};

struct pool_worker {
    struct pool *pool;
    uint32_t worker;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
    /* Wrong value, signal and wake-up all mean the same: look again. */
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void spin_pause(void) {
    __builtin_ia32_pause();
}

/* Takes and runs tasks until all are taken. */
static void run_tasks(struct pool *pool, uint32_t worker) {
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    while ((uint32_t)ticket > 0) {
        pool_task_fn task = atomic_load_explicit(&pool->task, memory_order_relaxed);
        void *context = atomic_load_explicit(&pool->context, memory_order_relaxed);
        uint32_t count = atomic_load_explicit(&pool->task_count, memory_order_relaxed);
        if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket - 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        task(context, count - (uint32_t)ticket, worker);
        uint32_t ended = atomic_fetch_add(&pool->ended, 1) + 1;
        if (ended == count && atomic_load(&pool->caller_sleeps)) futex_wake_all(&pool->ended);
        ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    }
}

static bool pool_has_work(struct pool *pool) {
    return (uint32_t)atomic_load(&pool->ticket) > 0 || atomic_load(&pool->stop);
}

static bool pool_has_ended(struct pool *pool) {
    return atomic_load(&pool->ended) == atomic_load(&pool->task_count);
}

/* Spins until `question` says yes or the time is over; says which. */
static bool spin_until(struct pool *pool, bool (*question)(struct pool *)) {
    int64_t deadline_ns = clock_monotonic_ns() + pool->spin_ns;
    do {
        for (int i = 0; i < SPINS_BETWEEN_CLOCKS; i++) {
            if (question(pool)) return true;
            spin_pause();
        }
    } while (clock_monotonic_ns() < deadline_ns);
    return false;
}

static void *worker_main(void *context) {
    struct pool_worker *self = context;
    struct pool *pool = self->pool;
    char name[16];
    (void)snprintf(name, sizeof name, "kernels-%u", self->worker % 1000);
    (void)pthread_setname_np(pthread_self(), name);
    while (!atomic_load(&pool->stop)) {
        run_tasks(pool, self->worker);
        if (spin_until(pool, pool_has_work)) continue;
        atomic_fetch_add(&pool->sleepers, 1);
        uint32_t seen = atomic_load(&pool->wake_word);
        if (!pool_has_work(pool)) futex_wait(&pool->wake_word, seen);
        atomic_fetch_sub(&pool->sleepers, 1);
    }
    return NULL;
}

static uint32_t usable_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (uint32_t)CPU_COUNT(&set);
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (uint32_t)count : 1;
}

enum err pool_open(struct pool **ret_pool, uint32_t threads, struct error *error) {
    uint32_t cores = usable_cores();
    if (threads == 0) threads = cores < POOL_THREADS_MAX ? cores : POOL_THREADS_MAX;
    if (threads > POOL_THREADS_MAX)
        return err_set(error, ERR_LIMIT, "threads: %u is over %u", threads, POOL_THREADS_MAX);

    struct pool *pool = aligned_alloc(_Alignof(struct pool), sizeof *pool);
    if (!pool) return err_set(error, ERR_LIMIT, "threads: no memory for %u of them", threads);
    *pool =
        (struct pool){.threads = threads, .spin_ns = threads > cores ? SPIN_NS_CROWDED : SPIN_NS};
    pool->handles = calloc(threads, sizeof *pool->handles);
    pool->workers = calloc(threads, sizeof *pool->workers);
    if (!pool->handles || !pool->workers) {
        pool_close(pool);
        return err_set(error, ERR_LIMIT, "threads: no memory for %u of them", threads);
    }
    for (uint32_t i = 1; i < threads; i++) {
        pool->workers[i] = (struct pool_worker){pool, i};
        int failure = pthread_create(&pool->handles[i], NULL, worker_main, &pool->workers[i]);
        if (failure) {
            pool_close(pool);
            return err_set(error, ERR_UNAVAILABLE, "threads: number %u of %u does not start (%d)",
                           i + 1, threads, failure);
        }
        pool->started = i;
    }
    *ret_pool = pool;
    return OK;
}

void pool_close(struct pool *pool) {
    if (!pool) return;
    assert((uint32_t)atomic_load(&pool->ticket) == 0);
    atomic_store(&pool->stop, true);
    atomic_fetch_add(&pool->wake_word, 1);
    futex_wake_all(&pool->wake_word);
    for (uint32_t i = 1; i <= pool->started; i++) (void)pthread_join(pool->handles[i], NULL);
    free(pool->handles);
    free(pool->workers);
    free(pool);
}

uint32_t pool_threads(const struct pool *pool) {
    return pool->threads;
}

void pool_run(struct pool *pool, pool_task_fn task, void *context, uint32_t task_count) {
    if (pool->threads == 1 || task_count <= 1) {
        for (uint32_t i = 0; i < task_count; i++) task(context, i, 0);
        return;
    }
    atomic_store_explicit(&pool->task, task, memory_order_relaxed);
    atomic_store_explicit(&pool->context, context, memory_order_relaxed);
    atomic_store_explicit(&pool->task_count, task_count, memory_order_relaxed);
    atomic_store(&pool->ended, 0);
    pool->job++;
    atomic_store(&pool->ticket, (uint64_t)pool->job << 32 | task_count);
    atomic_fetch_add(&pool->wake_word, 1);
    if (atomic_load(&pool->sleepers) > 0) futex_wake_all(&pool->wake_word);

    run_tasks(pool, 0);
    if (spin_until(pool, pool_has_ended)) return;
    atomic_store(&pool->caller_sleeps, 1);
    for (;;) {
        uint32_t seen = atomic_load(&pool->ended);
        if (seen == task_count) break;
        futex_wait(&pool->ended, seen);
    }
    atomic_store(&pool->caller_sleeps, 0);
}
