/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/pool.h"

#include "base/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TASKS 1000

struct counts {
    uint32_t by_task[TASKS]; /* plain: the pool must order them */
    atomic_uint by_worker[8];
};

static void count_task(void *context, uint32_t task, uint32_t worker) {
    struct counts *counts = context;
    counts->by_task[task]++;
    atomic_fetch_add(&counts->by_worker[worker], 1);
}

static struct pool *open_pool(uint32_t threads) {
    struct pool *pool;
    struct error error;
    assert_int_equal(pool_open(&pool, threads, &error), OK);
    return pool;
}

static void every_task_runs_once_whatever_the_number_of_threads(void **state) {
    (void)state;
    static const uint32_t threads[] = {1, 2, 3, 8};
    static const uint32_t task_counts[] = {0, 1, 2, 7, TASKS};
    for (size_t t = 0; t < 4; t++) {
        struct pool *pool = open_pool(threads[t]);
        assert_int_equal(pool_threads(pool), threads[t]);
        for (size_t c = 0; c < 5; c++) {
            struct counts counts;
            memset(&counts, 0, sizeof counts);
            pool_run(pool, count_task, &counts, task_counts[c]);
            uint32_t by_workers = 0;
            for (uint32_t i = 0; i < TASKS; i++)
                assert_int_equal(counts.by_task[i], i < task_counts[c]);
            for (uint32_t i = 0; i < 8; i++) {
                by_workers += counts.by_worker[i];
                if (i >= threads[t]) assert_int_equal(counts.by_worker[i], 0);
            }
            assert_int_equal(by_workers, task_counts[c]);
        }
        pool_close(pool);
    }
}

/* Thousands of short jobs, some after a pause in which workers fall asleep. */
static void jobs_one_after_another_see_what_those_before_wrote(void **state) {
    (void)state;
    struct pool *pool = open_pool(3);
    struct counts counts;
    memset(&counts, 0, sizeof counts);
    for (uint32_t job = 1; job <= 3000; job++) {
        uint32_t tasks = 1 + job % 5;
        pool_run(pool, count_task, &counts, tasks);
        if (job % 500 == 0) clock_sleep_ms(2);
    }
    assert_int_equal(counts.by_task[0], 3000);
    assert_int_equal(counts.by_task[1], 2400);
    assert_int_equal(counts.by_task[4], 600);
    pool_close(pool);
}

static void a_pool_that_never_ran_closes_and_so_does_none(void **state) {
    (void)state;
    pool_close(open_pool(4));
    pool_close(NULL);
}

static void zero_threads_means_one_for_each_core_and_too_many_are_refused(void **state) {
    (void)state;
    struct pool *pool = open_pool(0);
    struct error error;
    assert_true(pool_threads(pool) >= 1);
    pool_close(pool);
    assert_int_equal(pool_open(&pool, POOL_THREADS_MAX + 1, &error), ERR_LIMIT);
    assert_non_null(strstr(error.text, "threads"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once_whatever_the_number_of_threads),
        cmocka_unit_test(jobs_one_after_another_see_what_those_before_wrote),
        cmocka_unit_test(a_pool_that_never_ran_closes_and_so_does_none),
        cmocka_unit_test(zero_threads_means_one_for_each_core_and_too_many_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
