/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* large: the turn of large lines, which costs are known before they are taken.
 *
 * A line may have 16 MiB of request and as much of result, and shown as ASCII it has three times as
 * many bytes. A caller reads texts of up to LARGE_SMALL_BYTES at any time, and longer ones only
 * while it holds the turn, until its answer is given. So large lines cost the memory of one caller,
 * however many ask.
 *
 * Thread: any; a turn belongs to one thread.
 * Memory: none. */

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define LARGE_SMALL_BYTES ((size_t)1 << 20)

struct large {
    pthread_mutex_t lock;
    pthread_cond_t given;
    bool is_taken;
};

void large_init(struct large *large);
void large_release(struct large *large);

/* The turn of one caller; zero but for `large` before the first call. */
struct large_turn {
    struct large *large;
    bool is_held;
};

/* Takes the turn if the caller does not hold it. ERR_UNAVAILABLE if others hold it for 10 s. */
enum err large_take(struct large_turn *turn, struct error *error) MUST_CHECK;
void large_give(struct large_turn *turn); /* also if it is not held */
