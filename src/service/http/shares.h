/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* shares: the queue of requests for worker threads, in which owners take turns.
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

struct shares;
struct share; /* requests of one owner */

/* An owner holds at most `threads_each` threads at a time, at least one. */
struct shares *shares_new(uint32_t threads_each);
void shares_free(struct shares *shares); /* no thread may be inside; NULL is allowed */
void shares_put(struct shares *shares, const char *owner, void *item);
/* Waits for an item; NULL once the queue is stopped and empty. Each item that is taken must be
 * followed by shares_done. */
void *shares_take(struct shares *shares, struct share **ret_share);
/* The thread is free again. */
void shares_done(struct shares *shares, struct share *share);
void shares_stop(struct shares *shares);
