/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fair_queue: the queue of requests for worker threads, in which owners take turns.
 *
 * In a plain queue one owner's thousand slow requests come before anybody else's, and hold all
 * threads. Here the owner who had a thread last is the last to get one, and an owner may hold all
 * threads but one at a time, so that others find one. It knows an owner as a text only.
 *
 * Thread: any number on both sides, under one mutex.
 * Memory: one small block per item that waits, and one per owner with items or threads.
 * Invariant: items of one owner are taken in the order in which they were put. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fair_queue;
struct share; /* requests of one owner */

/* An owner holds at most `threads_each` threads at a time, at least one. */
struct fair_queue *fair_queue_new(uint32_t threads_each);
void fair_queue_free(struct fair_queue *queue); /* no thread may be inside; NULL is allowed */
void fair_queue_put(struct fair_queue *queue, const char *owner, void *item);
/* Waits for an item; NULL once the queue is stopped and empty. Each item that is taken must be
 * followed by fair_queue_done. */
void *fair_queue_take(struct fair_queue *queue, struct share **ret_share);
/* The thread is free again. */
void fair_queue_done(struct fair_queue *queue, struct share *share);
void fair_queue_stop(struct fair_queue *queue);
