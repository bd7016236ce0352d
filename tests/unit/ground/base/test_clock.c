/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include "base/sync.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define NS_PER_MS INT64_C(1000000)
#define HOUR_MS INT64_C(3600000)
#define YEAR_MS (365 * 24 * HOUR_MS)

static void a_process_that_asks_for_no_movable_clock_waits_in_one_piece(void **state) {
    (void)state;
    assert_false(clock_is_movable());
    assert_int_equal(clock_moved_ns(), 0);
    assert_int_equal(clock_wait_ms(60000), 60000);
    assert_int_equal(clock_wait_ms(-1), -1);
}

static void a_move_moves_all_clocks(void **state) {
    (void)state;
    int64_t unix_s = clock_unix_s(), unix_ms = clock_unix_ms(), ns = clock_monotonic_ns();
    int64_t moved_ns = clock_moved_ns();
    clock_make_movable();
    clock_move_ms(YEAR_MS);
    assert_int_equal(clock_moved_ns() - moved_ns, YEAR_MS * NS_PER_MS);
    assert_true(clock_unix_s() - unix_s >= YEAR_MS / 1000);
    assert_true(clock_unix_ms() - unix_ms >= YEAR_MS);
    assert_true(clock_monotonic_ns() - ns >= YEAR_MS * NS_PER_MS);
    assert_int_equal(clock_wait_ms(60000), CLOCK_LOOK_MS);
    assert_int_equal(clock_wait_ms(-1), CLOCK_LOOK_MS);
    assert_int_equal(clock_wait_ms(1), 1);
}

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int64_t due_ns;
    bool has_begun;
};

static void *wait_until_due(void *user) {
    struct waiter *waiter = user;
    pthread_mutex_lock(&waiter->lock);
    waiter->has_begun = true;
    pthread_cond_signal(&waiter->cond);
    while (sync_wait_until(&waiter->cond, &waiter->lock, waiter->due_ns)) continue;
    pthread_mutex_unlock(&waiter->lock);
    return NULL;
}

/* Without the wake, this and the next test run into the time limit of the program. */
static void a_move_ends_the_waits_whose_deadline_it_passes(void **state) {
    (void)state;
    clock_make_movable();
    struct waiter waiter = {.lock = PTHREAD_MUTEX_INITIALIZER, .due_ns = sync_deadline_ns(HOUR_MS)};
    pthread_t thread;
    sync_cond_init(&waiter.cond);
    pthread_mutex_lock(&waiter.lock);
    assert_int_equal(pthread_create(&thread, NULL, wait_until_due, &waiter), 0);
    while (!waiter.has_begun) sync_wait_until(&waiter.cond, &waiter.lock, SYNC_NEVER);
    pthread_mutex_unlock(&waiter.lock); /* the thread has let the lock go: it waits */
    clock_move_ms(HOUR_MS);
    pthread_join(thread, NULL);
    assert_true(clock_monotonic_ns() >= waiter.due_ns);
    pthread_cond_destroy(&waiter.cond);
}

static void *sleep_an_hour(void *user) {
    clock_sleep_ms(HOUR_MS);
    atomic_store((atomic_bool *)user, true);
    return NULL;
}

static void a_move_ends_a_sleep(void **state) {
    (void)state;
    clock_make_movable();
    atomic_bool has_slept = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, sleep_an_hour, &has_slept), 0);
    while (!atomic_load(&has_slept)) {
        clock_move_ms(HOUR_MS);
        usleep(1000); /* a thread that starts late must not meet a clock past its 292 years */
    }
    pthread_join(thread, NULL);
}

/* --- a clock that lies in a file; the last test, for nothing else moves the clocks after it --- */

static void write_clock(const char *path, int64_t ms, size_t bytes) {
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fwrite(&ms, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void a_clock_in_a_file_is_followed_unless_others_can_write_it(void **state) {
    (void)state;
    struct error error;
    char path[] = "/tmp/quern-clock-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(clock_follow(path, &error), ERR_INVALID); /* empty */
    write_clock(path, 0, 4);
    assert_int_equal(clock_follow(path, &error), ERR_INVALID);
    write_clock(path, 0, 8);
    assert_int_equal(chmod(path, 0622), 0);
    assert_int_equal(clock_follow(path, &error), ERR_INVALID);
    assert_int_equal(clock_follow("/tmp", &error), ERR_INVALID);
    assert_int_equal(clock_follow("/nonexistent/clock", &error), ERR_NOT_FOUND);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(clock_follow(path, &error), OK);
    assert_int_equal(clock_moved_ns(), 0);
    write_clock(path, HOUR_MS, 8);
    assert_int_equal(clock_moved_ns(), HOUR_MS * NS_PER_MS);
    assert_int_equal(unlink(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_asks_for_no_movable_clock_waits_in_one_piece),
        cmocka_unit_test(a_move_moves_all_clocks),
        cmocka_unit_test(a_move_ends_the_waits_whose_deadline_it_passes),
        cmocka_unit_test(a_move_ends_a_sleep),
        cmocka_unit_test(a_clock_in_a_file_is_followed_unless_others_can_write_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
