/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/kv_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct kv_pool *pool_of(uint32_t block_count) {
    struct kv_pool *pool = NULL;
    assert_int_equal(kv_pool_open(&pool, block_count, NULL), OK);
    return pool;
}

static void a_pool_of_no_blocks_or_too_many_does_not_open(void **state) {
    (void)state;
    struct kv_pool *pool = NULL;
    struct error error;
    assert_int_equal(kv_pool_open(&pool, 0, &error), ERR_INVALID);
    assert_int_equal(kv_pool_open(&pool, KV_BLOCKS_MAX + 1, &error), ERR_INVALID);
    assert_string_equal(error.text, "kv blocks: 16777217 is outside 1..16777216");
    assert_null(pool);
}

static void every_block_is_taken_once_and_then_none_is_left(void **state) {
    (void)state;
    struct kv_pool *pool = pool_of(3);
    uint32_t seen = 0;
    uint32_t block;
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(kv_pool_take(pool, &block));
        seen |= 1u << block;
    }
    assert_int_equal(seen, 7);
    assert_false(kv_pool_take(pool, &block));
    for (uint32_t i = 0; i < 3; i++) kv_pool_drop(pool, i, false);
    assert_int_equal(kv_pool_free_count(pool), 3);
    kv_pool_close(pool);
}

static void a_shared_block_is_free_after_its_last_drop(void **state) {
    (void)state;
    struct kv_pool *pool = pool_of(2);
    uint32_t block;
    assert_true(kv_pool_take(pool, &block));
    kv_pool_hold(pool, block);
    assert_int_equal(kv_pool_check(pool), 2);
    kv_pool_drop(pool, block, false);
    assert_int_equal(kv_pool_used_count(pool), 1);
    kv_pool_drop(pool, block, false);
    assert_int_equal(kv_pool_free_count(pool), 2);
    assert_int_equal(kv_pool_check(pool), 0);
    kv_pool_close(pool);
}

static void kept_blocks_are_cached_and_the_first_dropped_is_the_oldest(void **state) {
    (void)state;
    struct kv_pool *pool = pool_of(3);
    uint32_t blocks[3];
    for (uint32_t i = 0; i < 3; i++) assert_true(kv_pool_take(pool, &blocks[i]));
    for (uint32_t i = 3; i-- > 0;) kv_pool_drop(pool, blocks[i], true);
    assert_int_equal(kv_pool_cached_count(pool), 3);
    uint32_t block;
    assert_false(kv_pool_take(pool, &block)); /* cached is not free */
    assert_true(kv_pool_oldest(pool, &block));
    assert_int_equal(block, blocks[2]);

    /* Used again it leaves the list, from the middle of it too, and comes back as the youngest. */
    kv_pool_hold(pool, blocks[1]);
    assert_int_equal(kv_pool_check(pool), 1);
    kv_pool_drop(pool, blocks[1], true);
    kv_pool_forget(pool, blocks[2]);
    assert_true(kv_pool_oldest(pool, &block));
    assert_int_equal(block, blocks[0]);
    kv_pool_forget(pool, blocks[0]);
    assert_true(kv_pool_oldest(pool, &block));
    assert_int_equal(block, blocks[1]);
    kv_pool_forget(pool, blocks[1]);
    assert_false(kv_pool_oldest(pool, &block));
    assert_int_equal(kv_pool_check(pool), 0);
    assert_int_equal(kv_pool_free_count(pool), 3);
    kv_pool_close(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_of_no_blocks_or_too_many_does_not_open),
        cmocka_unit_test(every_block_is_taken_once_and_then_none_is_left),
        cmocka_unit_test(a_shared_block_is_free_after_its_last_drop),
        cmocka_unit_test(kept_blocks_are_cached_and_the_first_dropped_is_the_oldest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
