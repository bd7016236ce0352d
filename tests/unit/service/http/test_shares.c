/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/shares.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static char item[] = "abcdefghij";

static char take(struct shares *shares, struct share **ret_share) {
    const char *taken = shares_take(shares, ret_share);
    return taken ? *taken : '-';
}

/* Takes all items, one thread at a time. */
static void order(struct shares *shares, const char *wanted) {
    struct share *share;
    char got[16] = {0};
    for (size_t i = 0; wanted[i]; i++) {
        got[i] = take(shares, &share);
        shares_done(shares, share);
    }
    assert_string_equal(got, wanted);
}

static void owners_take_turns(void **state) {
    struct shares *shares = shares_new(3);
    (void)state;
    for (size_t i = 0; i < 5; i++) shares_put(shares, "first", &item[i]);
    shares_put(shares, "second", &item[5]);
    shares_put(shares, "second", &item[6]);
    shares_put(shares, "", &item[7]);
    order(shares, "afhbgcde");
    shares_put(shares, "first", &item[0]);
    order(shares, "a");
    shares_free(shares);
}

static void an_owner_leaves_a_thread_for_others(void **state) {
    struct shares *shares = shares_new(2);
    struct share *share[4];
    (void)state;
    for (size_t i = 0; i < 4; i++) shares_put(shares, "first", &item[i]);
    assert_int_equal(take(shares, &share[0]), 'a');
    assert_int_equal(take(shares, &share[1]), 'b');
    shares_put(shares, "second", &item[5]);
    assert_int_equal(take(shares, &share[2]), 'f');
    shares_done(shares, share[0]);
    assert_int_equal(take(shares, &share[3]), 'c');
    for (size_t i = 1; i < 4; i++) shares_done(shares, share[i]);
    order(shares, "d");
    shares_free(shares);
}

static void *take_one(void *context) {
    struct share *share;
    char *taken = shares_take(context, &share);
    if (taken) shares_done(context, share);
    return taken;
}

static void a_thread_waits_for_an_item_that_it_may_take(void **state) {
    struct shares *shares = shares_new(1);
    struct share *share;
    pthread_t thread;
    void *taken;
    (void)state;
    shares_put(shares, "first", &item[0]);
    shares_put(shares, "first", &item[1]);
    assert_int_equal(take(shares, &share), 'a');
    assert_int_equal(pthread_create(&thread, NULL, take_one, shares), 0);
    shares_done(shares, share);
    pthread_join(thread, &taken);
    assert_ptr_equal(taken, &item[1]);
    assert_int_equal(pthread_create(&thread, NULL, take_one, shares), 0);
    shares_stop(shares);
    pthread_join(thread, &taken);
    assert_null(taken);
    shares_free(shares);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_take_turns),
        cmocka_unit_test(an_owner_leaves_a_thread_for_others),
        cmocka_unit_test(a_thread_waits_for_an_item_that_it_may_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
