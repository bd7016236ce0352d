/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sync: condition variables on the monotonic clock, and deadlines for them.
 *
 * A plain pthread_cond_t waits on the wall clock, which an operator may set back by an hour. Every
 * condition of quern that is waited on with a deadline is made here. In a process with movable
 * clocks (clock.h) a wait with a deadline wakes every CLOCK_LOOK_MS and looks at the clock again.
 *
 * Thread: any; the caller holds the lock of a condition as for pthread_cond_wait.
 * Memory: the caller's condition. */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A deadline that never comes. */
#define SYNC_NEVER INT64_MAX

/* The condition is destroyed with pthread_cond_destroy. */
void sync_cond_init(pthread_cond_t *cond);

/* The monotonic time in nanoseconds that lies `timeout_ms` ahead; SYNC_NEVER if it is negative. */
int64_t sync_deadline_ns(int64_t timeout_ms);

/* Waits until the condition is signalled or the monotonic clock reaches `due_ns`. False if the
 * deadline has come. Wakes without a cause, as pthread_cond_wait does, answer true. */
bool sync_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t due_ns);
