/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sync.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_deadline_lies_ahead_or_never_comes(void **state) {
    (void)state;
    int64_t before_ns = clock_monotonic_ns(), due_ns = sync_deadline_ns(1000);
    assert_true(due_ns >= before_ns + 1000000000 && due_ns <= clock_monotonic_ns() + 1000000000);
    assert_true(sync_deadline_ns(0) <= clock_monotonic_ns());
    assert_true(sync_deadline_ns(-1) == SYNC_NEVER);
    assert_true(sync_deadline_ns(INT64_MAX) == SYNC_NEVER);
}

static void a_wait_past_its_deadline_answers_false(void **state) {
    (void)state;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    sync_cond_init(&cond);
    pthread_mutex_lock(&lock);
    assert_false(sync_wait_until(&cond, &lock, 0));
    assert_false(sync_wait_until(&cond, &lock, -5));
    int64_t due_ns = clock_monotonic_ns() + 2000000;
    while (sync_wait_until(&cond, &lock, due_ns)) {
    }
    assert_true(clock_monotonic_ns() >= due_ns);
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&cond);
}

struct bell {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool has_rung;
};

static void *ring_the_bell(void *user) {
    struct bell *bell = user;
    pthread_mutex_lock(&bell->lock);
    bell->has_rung = true;
    pthread_cond_signal(&bell->cond);
    pthread_mutex_unlock(&bell->lock);
    return NULL;
}

static void a_signal_ends_a_wait_without_a_deadline(void **state) {
    (void)state;
    struct bell bell = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    sync_cond_init(&bell.cond);
    pthread_mutex_lock(&bell.lock);
    assert_int_equal(pthread_create(&thread, NULL, ring_the_bell, &bell), 0);
    while (!bell.has_rung) assert_true(sync_wait_until(&bell.cond, &bell.lock, SYNC_NEVER));
    pthread_mutex_unlock(&bell.lock);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&bell.cond);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_lies_ahead_or_never_comes),
        cmocka_unit_test(a_wait_past_its_deadline_answers_false),
        cmocka_unit_test(a_signal_ends_a_wait_without_a_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
