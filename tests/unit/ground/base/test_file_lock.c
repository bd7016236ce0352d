/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/file_lock.h"
#include "base/os.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct pair {
    char path[32];
    int one, other;
};

static void open_pair(struct pair *ret_pair) {
    struct error error;
    *ret_pair = (struct pair){.path = "/tmp/quern-test-XXXXXX"};
    ret_pair->one = mkstemp(ret_pair->path);
    assert_true(ret_pair->one >= 0);
    assert_int_equal(os_open(&ret_pair->other, ret_pair->path, O_RDWR, 0, &error), OK);
}

static void close_pair(struct pair *pair) {
    os_close(pair->one);
    os_close(pair->other);
    unlink(pair->path);
}

/* As a killed program whose memory the kernel still takes back. */
static void *let_go(void *pair) {
    clock_sleep_ms(200);
    os_close(((struct pair *)pair)->one);
    ((struct pair *)pair)->one = -1;
    return NULL;
}

static void the_lock_of_a_program_that_is_ending_is_waited_for(void **state) {
    (void)state;
    struct pair pair;
    struct error error;
    pthread_t thread;
    open_pair(&pair);
    assert_int_equal(file_lock(pair.one, pair.path, false, &error), OK);
    assert_int_equal(pthread_create(&thread, NULL, let_go, &pair), 0);
    assert_int_equal(file_lock(pair.other, pair.path, false, &error), OK);
    pthread_join(thread, NULL);
    close_pair(&pair);
}

static void a_lock_that_is_kept_is_a_conflict_and_shared_ones_are_none(void **state) {
    (void)state;
    struct pair pair;
    struct error error;
    open_pair(&pair);
    assert_int_equal(file_lock(pair.one, pair.path, true, &error), OK);
    assert_int_equal(file_lock(pair.other, pair.path, true, &error), OK);
    assert_int_equal(file_lock(pair.one, pair.path, false, &error), ERR_CONFLICT);
    close_pair(&pair);
}

static void what_cannot_be_locked_says_so(void **state) {
    (void)state;
    struct error error;
    assert_int_not_equal(file_lock(-1, "the file", false, &error), OK);
    assert_non_null(strstr(error.text, "cannot lock the file"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lock_of_a_program_that_is_ending_is_waited_for),
        cmocka_unit_test(a_lock_that_is_kept_is_a_conflict_and_shared_ones_are_none),
        cmocka_unit_test(what_cannot_be_locked_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
