/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "cluster/job_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define IDS 512

static void a_set_is_what_was_put_and_not_taken(void **state) {
    (void)state;
    static bool is_in[IDS];
    struct job_set set = {0};
    size_t count = 0;
    for (uint64_t step = 0; step < 200000; step++) {
        /* Numbers far apart and close together meet in one place. */
        size_t at = (size_t)(rng_unit_at(11, step) * IDS);
        uint64_t id = at % 2 ? at + 1 : (at + 1) << 32, value;
        assert_int_equal(job_set_find(&set, id) != NULL, is_in[at]);
        if (is_in[at]) {
            assert_true(job_set_take(&set, id, &value));
            assert_int_equal(value, at);
            count--;
        } else {
            job_set_put(&set, id, at);
            count++;
        }
        is_in[at] = !is_in[at];
        assert_int_equal(set.count, count);
    }
    for (size_t at = 0; at < IDS; at++) {
        const uint64_t *value = job_set_find(&set, at % 2 ? at + 1 : (at + 1) << 32);
        assert_int_equal(value != NULL, is_in[at]);
        if (value) assert_int_equal(*value, at);
    }
    job_set_release(&set);
}

static void nothing_is_found_in_an_empty_set(void **state) {
    (void)state;
    struct job_set set = {0};
    uint64_t value;
    assert_null(job_set_find(&set, 1));
    assert_false(job_set_take(&set, 1, &value));
    assert_false(job_set_take(&set, 0, &value));
    job_set_release(&set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_is_what_was_put_and_not_taken),
        cmocka_unit_test(nothing_is_found_in_an_empty_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
