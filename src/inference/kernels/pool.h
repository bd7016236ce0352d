/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pool: a fixed set of threads that runs numbered tasks of one job at a time.
 *
 * Tasks are taken in ascending order from one atomic ticket; the caller takes part. Idle workers
 * spin for about 20 microseconds (less with more threads than cores), then sleep on a futex. The
 * work of a task is not the pool's business.
 *
 * Thread: pool_run by one thread at a time.
 * Memory: owned, allocated once in pool_open.
 * Invariant: pool_run returns after every task has ended, and then their writes are visible. */

#include "base/err.h"

#include <stdint.h>

#define POOL_THREADS_MAX 512

struct pool;

/* A task. `worker` is below the number of threads and differs between tasks that run at once, for
 * scratch memory per thread; 0 is the caller of pool_run. */
typedef void (*pool_task_fn)(void *context, uint32_t task, uint32_t worker);

/* Opens a pool of `threads` threads, the caller of pool_run included (default, with 0: one per core
 * that this process may use). ERR_LIMIT over POOL_THREADS_MAX; ERR_UNAVAILABLE when a thread does
 * not start. */
enum err pool_open(struct pool **ret_pool, uint32_t threads, struct error *error) MUST_CHECK;
void pool_close(struct pool *pool); /* no job may run; NULL is allowed */
uint32_t pool_threads(const struct pool *pool);
/* Runs task(context, 0..task_count-1, worker). */
void pool_run(struct pool *pool, pool_task_fn task, void *context, uint32_t task_count);
