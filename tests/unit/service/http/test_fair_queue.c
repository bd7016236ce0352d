/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/fair_queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static char item[] = "abcdefghij";

static char take(struct fair_queue *queue, struct share **ret_share) {
    const char *taken = fair_queue_take(queue, ret_share);
    return taken ? *taken : '-';
}

/* Takes all items, one thread at a time. */
static void order(struct fair_queue *queue, const char *wanted) {
    struct share *share;
    char got[16] = {0};
    for (size_t i = 0; wanted[i]; i++) {
        got[i] = take(queue, &share);
        fair_queue_done(queue, share);
    }
    assert_string_equal(got, wanted);
}

static void owners_take_turns(void **state) {
    struct fair_queue *queue = fair_queue_new(3);
    (void)state;
    for (size_t i = 0; i < 5; i++) fair_queue_put(queue, "first", &item[i]);
    fair_queue_put(queue, "second", &item[5]);
    fair_queue_put(queue, "second", &item[6]);
    fair_queue_put(queue, "", &item[7]);
    order(queue, "afhbgcde");
    fair_queue_put(queue, "first", &item[0]);
    order(queue, "a");
    fair_queue_free(queue);
}

static void an_owner_leaves_a_thread_for_others(void **state) {
    struct fair_queue *queue = fair_queue_new(2);
    struct share *share[4];
    (void)state;
    for (size_t i = 0; i < 4; i++) fair_queue_put(queue, "first", &item[i]);
    assert_int_equal(take(queue, &share[0]), 'a');
    assert_int_equal(take(queue, &share[1]), 'b');
    fair_queue_put(queue, "second", &item[5]);
    assert_int_equal(take(queue, &share[2]), 'f');
    fair_queue_done(queue, share[0]);
    assert_int_equal(take(queue, &share[3]), 'c');
    for (size_t i = 1; i < 4; i++) fair_queue_done(queue, share[i]);
    order(queue, "d");
    fair_queue_free(queue);
}

static void *take_one(void *context) {
    struct share *share;
    char *taken = fair_queue_take(context, &share);
    if (taken) fair_queue_done(context, share);
    return taken;
}

static void a_thread_waits_for_an_item_that_it_may_take(void **state) {
    struct fair_queue *queue = fair_queue_new(1);
    struct share *share;
    pthread_t thread;
    void *taken;
    (void)state;
    fair_queue_put(queue, "first", &item[0]);
    fair_queue_put(queue, "first", &item[1]);
    assert_int_equal(take(queue, &share), 'a');
    assert_int_equal(pthread_create(&thread, NULL, take_one, queue), 0);
    fair_queue_done(queue, share);
    pthread_join(thread, &taken);
    assert_ptr_equal(taken, &item[1]);
    assert_int_equal(pthread_create(&thread, NULL, take_one, queue), 0);
    fair_queue_stop(queue);
    pthread_join(thread, &taken);
    assert_null(taken);
    fair_queue_free(queue);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_take_turns),
        cmocka_unit_test(an_owner_leaves_a_thread_for_others),
        cmocka_unit_test(a_thread_waits_for_an_item_that_it_may_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
