/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/kv_pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct kv_pages *open_pages(uint32_t page_count, uint32_t full, uint32_t window) {
    struct kv_pages *pages = NULL;
    struct kv_shape shape = {page_count, full, window};
    assert_int_equal(kv_pages_open(&pages, &shape, 8, NULL), OK);
    return pages;
}

static void a_block_gets_all_its_pages_or_none(void **state) {
    (void)state;
    struct kv_pages *pages = open_pages(7, 1, 2);
    assert_true(kv_pages_give(pages, 3));
    assert_true(kv_pages_give(pages, 5));
    assert_false(kv_pages_give(pages, 6)); /* one page is left */
    assert_int_equal(kv_pages_free_count(pages), 1);
    for (uint32_t a = 0; a < 3; a++)
        for (uint32_t b = 0; b < 3; b++)
            assert_int_not_equal(kv_pages_of(pages, 3, a), kv_pages_of(pages, 5, b));
    assert_int_equal(kv_pages_check(pages, 2), 2);
    kv_pages_drop_window(pages, 3, false, 1);
    kv_pages_take_back(pages, 3);
    assert_int_equal(kv_pages_free_count(pages), 4);
    assert_true(kv_pages_give(pages, 6));
    kv_pages_close(pages);
}

static void window_pages_stay_cached_until_they_are_forgotten(void **state) {
    (void)state;
    struct kv_pages *pages = open_pages(9, 1, 2);
    uint32_t block;
    uint64_t since;
    for (uint32_t i = 0; i < 3; i++) assert_true(kv_pages_give(pages, i));
    assert_false(kv_pages_oldest_window(pages, &block, &since));
    kv_pages_hold_window(pages, 1);
    kv_pages_drop_window(pages, 1, true, 10);
    assert_int_equal(kv_pages_cached_count(pages), 0); /* still held by one */
    kv_pages_drop_window(pages, 1, true, 11);
    kv_pages_drop_window(pages, 0, true, 12);
    kv_pages_drop_window(pages, 2, false, 13);
    assert_false(kv_pages_has_window(pages, 2));
    assert_int_equal(kv_pages_cached_count(pages), 4);
    assert_int_equal(kv_pages_free_count(pages), 2);
    assert_true(kv_pages_oldest_window(pages, &block, &since));
    assert_int_equal(block, 1);
    assert_int_equal(since, 11);
    kv_pages_hold_window(pages, 1); /* found by a sequence */
    assert_true(kv_pages_oldest_window(pages, &block, &since));
    assert_int_equal(block, 0);
    kv_pages_forget_window(pages, 0);
    assert_false(kv_pages_has_window(pages, 0));
    assert_int_equal(kv_pages_free_count(pages), 4);
    assert_int_equal(kv_pages_check(pages, 3), 1);
    kv_pages_close(pages);
}

static void window_pages_move_to_a_block_that_has_none(void **state) {
    (void)state;
    struct kv_pages *pages = open_pages(6, 1, 2);
    assert_true(kv_pages_give(pages, 0));
    assert_true(kv_pages_give(pages, 1));
    uint32_t own = kv_pages_of(pages, 1, 0), moved = kv_pages_of(pages, 0, 1);
    kv_pages_drop_window(pages, 1, false, 1);
    kv_pages_move_window(pages, 0, 1);
    assert_true(kv_pages_has_window(pages, 1));
    assert_false(kv_pages_has_window(pages, 0));
    assert_int_equal(kv_pages_window_holds(pages, 1), 1);
    assert_int_equal(kv_pages_of(pages, 1, 0), own);
    assert_int_equal(kv_pages_of(pages, 1, 1), moved);
    kv_pages_take_back(pages, 0);
    assert_int_equal(kv_pages_check(pages, 1), 1);
    kv_pages_close(pages);
}

static void without_windows_every_block_has_them(void **state) {
    (void)state;
    struct kv_pages *pages = open_pages(2, 1, 0);
    assert_true(kv_pages_give(pages, 0));
    kv_pages_hold_window(pages, 0);
    kv_pages_drop_window(pages, 0, false, 1);
    assert_true(kv_pages_has_window(pages, 0));
    kv_pages_take_back(pages, 0);
    assert_int_equal(kv_pages_check(pages, 0), 0);
    kv_pages_close(pages);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_gets_all_its_pages_or_none),
        cmocka_unit_test(window_pages_stay_cached_until_they_are_forgotten),
        cmocka_unit_test(window_pages_move_to_a_block_that_has_none),
        cmocka_unit_test(without_windows_every_block_has_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
