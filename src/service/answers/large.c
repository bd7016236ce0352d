/* SPDX-License-Identifier: Apache-2.0 */
#include "answers/large.h"

#include "base/clock.h"
#include "base/sync.h"

#define WAIT_MS 10000

void large_init(struct large *large) {
    pthread_mutex_init(&large->lock, NULL);
    sync_cond_init(&large->given);
    large->is_taken = false;
}

void large_release(struct large *large) {
    pthread_cond_destroy(&large->given);
    pthread_mutex_destroy(&large->lock);
}

enum err large_take(struct large_turn *turn, struct error *error) {
    struct large *large = turn->large;
    int64_t until_ns = clock_monotonic_ns() + (int64_t)WAIT_MS * 1000000;
    if (turn->is_held) return OK;
    pthread_mutex_lock(&large->lock);
    while (large->is_taken && clock_monotonic_ns() < until_ns)
        sync_wait_until(&large->given, &large->lock, until_ns);
    turn->is_held = !large->is_taken;
    large->is_taken = true;
    pthread_mutex_unlock(&large->lock);
    if (turn->is_held) return OK;
    return err_set(error, ERR_UNAVAILABLE, "other large lines are being read");
}

void large_give(struct large_turn *turn) {
    if (!turn->is_held) return;
    turn->is_held = false;
    pthread_mutex_lock(&turn->large->lock);
    turn->large->is_taken = false;
    pthread_cond_signal(&turn->large->given);
    pthread_mutex_unlock(&turn->large->lock);
}
