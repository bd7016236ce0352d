/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/faults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define S INT64_C(1000000000)

static void a_worker_is_sick_from_the_eighth_error_in_a_row_on(void **state) {
    (void)state;
    struct faults faults = {0};
    for (int i = 1; i < FAULTS_SICK; i++) assert_false(faults_note(&faults, 0));
    assert_false(faults_are_many(&faults));
    faults_end(&faults);
    for (int i = 1; i < FAULTS_SICK; i++) assert_false(faults_note(&faults, 0));
    assert_true(faults_note(&faults, 100 * S)); /* it has become so: told once */
    assert_true(faults_are_many(&faults));
    assert_false(faults_note(&faults, 100 * S));
    faults_end(&faults);
    assert_false(faults_are_many(&faults));
}

static void the_pause_doubles_with_each_error_that_comes_after_one(void **state) {
    (void)state;
    struct faults faults = {0};
    int64_t now_ns = 50 * S, pause_s = 5;
    for (int i = 0; i < FAULTS_SICK; i++) (void)faults_note(&faults, now_ns);
    assert_int_equal(faults.due_ns, now_ns + pause_s * S);
    for (int i = 0; i < 100; i++) (void)faults_note(&faults, now_ns + 1); /* were in flight */
    assert_int_equal(faults.due_ns, now_ns + pause_s * S);
    for (int i = 0; i < 10; i++) {
        now_ns = faults.due_ns;
        pause_s = pause_s < 320 ? pause_s * 2 : 320;
        assert_false(faults_note(&faults, now_ns));
        assert_int_equal(faults.due_ns, now_ns + pause_s * S);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_is_sick_from_the_eighth_error_in_a_row_on),
        cmocka_unit_test(the_pause_doubles_with_each_error_that_comes_after_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
