/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sync.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)

void sync_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int64_t sync_deadline_ns(int64_t timeout_ms) {
    int64_t now_ns = clock_monotonic_ns();
    if (timeout_ms < 0 || timeout_ms > (SYNC_NEVER - now_ns) / NS_PER_MS) return SYNC_NEVER;
    return now_ns + timeout_ms * NS_PER_MS;
}

bool sync_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t due_ns) {
    if (due_ns == SYNC_NEVER) {
        pthread_cond_wait(cond, lock);
        return true;
    }
    bool is_cut = false;
    if (clock_is_movable()) {
        int64_t look_ns = clock_monotonic_ns() + CLOCK_LOOK_MS * NS_PER_MS;
        is_cut = due_ns > look_ns;
        if (is_cut) due_ns = look_ns;
        due_ns -= clock_moved_ns();
    }
    if (due_ns < 0) due_ns = 0;
    const struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};
    int waited = pthread_cond_timedwait(cond, lock, &due);
    assert(waited == 0 || waited == ETIMEDOUT);
    return waited == 0 || is_cut;
}
