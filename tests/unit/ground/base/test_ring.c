/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ring.h"

#include <pthread.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MESSAGES 20000
#define PUTTERS 3

static void *put_all(void *context) {
    struct ring *ring = context;
    for (int i = 1; i <= MESSAGES; i++)
        if (!ring_put(ring, &i)) return NULL;
    return NULL;
}

static void every_message_arrives_once_across_threads(void **state) {
    (void)state;
    struct ring *ring;
    struct error error;
    pthread_t threads[PUTTERS];
    assert_int_equal(ring_open(&ring, 7, sizeof(int), &error), OK);
    for (int i = 0; i < PUTTERS; i++) pthread_create(&threads[i], NULL, put_all, ring);
    long long sum = 0;
    for (int i = 0; i < PUTTERS * MESSAGES; i++) {
        int message;
        assert_true(ring_take(ring, &message, -1));
        sum += message;
    }
    for (int i = 0; i < PUTTERS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(sum, (long long)PUTTERS * MESSAGES * (MESSAGES + 1) / 2);
    assert_int_equal(ring_count(ring), 0);
    ring_close(ring);
}

static void a_stopped_ring_gives_out_what_it_holds_and_takes_nothing(void **state) {
    (void)state;
    struct ring *ring;
    struct error error;
    int message = 5;
    assert_int_equal(ring_open(&ring, 2, sizeof(int), &error), OK);
    assert_true(ring_put(ring, &message));
    ring_stop(ring);
    assert_false(ring_put(ring, &message));
    message = 0;
    assert_true(ring_take(ring, &message, -1));
    assert_int_equal(message, 5);
    assert_false(ring_take(ring, &message, -1));
    ring_close(ring);
}

static void a_full_ring_refuses_a_try_and_an_empty_one_times_out(void **state) {
    (void)state;
    struct ring *ring;
    struct error error;
    int message = 1;
    assert_int_equal(ring_open(&ring, 1, sizeof(int), &error), OK);
    assert_true(ring_try_put(ring, &message));
    assert_false(ring_try_put(ring, &message));
    assert_true(ring_take(ring, &message, 0));
    assert_false(ring_take(ring, &message, 0));
    assert_false(ring_take(ring, &message, 1));
    ring_close(ring);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_arrives_once_across_threads),
        cmocka_unit_test(a_stopped_ring_gives_out_what_it_holds_and_takes_nothing),
        cmocka_unit_test(a_full_ring_refuses_a_try_and_an_empty_one_times_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
