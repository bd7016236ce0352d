/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/body_memory_claims.h"

#include <stdio.h>

#define ALL 100 /* bytes of memory for bodies */

static void who_was_refused_is_next(void **state) {
    (void)state;
    struct body_memory_claims claims = {.count = 0};
    assert_true(body_memory_claims_admit(&claims, "greedy", 90, ALL, 0));
    assert_false(body_memory_claims_admit(&claims, "good", 80, 10, 0));
    for (int i = 0; i < 20; i++) /* its other clients come first when memory is free */
        assert_false(body_memory_claims_admit(&claims, "greedy", 90, ALL, 100));
    assert_true(body_memory_claims_admit(&claims, "good", 80, ALL, 1000));
    assert_false(body_memory_claims_admit(&claims, "greedy", 90, ALL,
                                          1001)); /* bytes of the good one come */
    body_memory_claims_end(&claims, "good");
    assert_true(body_memory_claims_admit(&claims, "greedy", 90, ALL, 1002));
    body_memory_claims_end(&claims, "greedy");
    assert_int_equal(claims.count, 0);
}

static void owners_alternate(void **state) {
    (void)state;
    struct body_memory_claims claims = {.count = 0};
    const char *owners[] = {"a", "b", "c"};
    int served[3] = {0};
    for (size_t i = 0; i < 3; i++)
        assert_false(body_memory_claims_admit(&claims, owners[i], 90, 0, 0));
    for (int round = 0; round < 30; round++) {
        /* "a" asks first and often. */
        for (size_t i = 0; i < 3; i++) {
            if (!body_memory_claims_admit(&claims, owners[i], 90, ALL, round)) continue;
            served[i]++;
            body_memory_claims_end(&claims, owners[i]);
            assert_false(body_memory_claims_admit(&claims, owners[i], 90, 0, round));
            break;
        }
    }
    for (size_t i = 0; i < 3; i++) assert_int_equal(served[i], 10);
}

static void what_fits_next_to_the_claims_is_admitted(void **state) {
    (void)state;
    struct body_memory_claims claims = {.count = 0};
    assert_false(body_memory_claims_admit(&claims, "large", 80, 10, 0));
    assert_true(body_memory_claims_admit(&claims, "small", 20, ALL, 0));
    assert_false(body_memory_claims_admit(&claims, "other", 21, ALL, 0));
}

static void a_claim_that_nobody_takes_ends(void **state) {
    (void)state;
    struct body_memory_claims claims = {.count = 0};
    assert_false(body_memory_claims_admit(&claims, "gone", 90, 0, 0));
    assert_false(body_memory_claims_admit(&claims, "good", 90, ALL, CLAIM_MS - 1));
    assert_true(body_memory_claims_admit(&claims, "good", 90, ALL, CLAIM_MS));
}

static void claims_are_bounded(void **state) {
    (void)state;
    struct body_memory_claims claims = {.count = 0};
    char owner[16];
    for (int i = 0; i < 2 * CLAIMS_MAX; i++) {
        snprintf(owner, sizeof owner, "%d", i);
        assert_false(body_memory_claims_admit(&claims, owner, 90, 0, 0));
    }
    assert_int_equal(claims.count, CLAIMS_MAX);
    assert_true(body_memory_claims_admit(&claims, "0", 90, ALL, 1));
    assert_false(body_memory_claims_admit(&claims, "1", 90, ALL, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_refused_is_next),
        cmocka_unit_test(owners_alternate),
        cmocka_unit_test(what_fits_next_to_the_claims_is_admitted),
        cmocka_unit_test(a_claim_that_nobody_takes_ends),
        cmocka_unit_test(claims_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
