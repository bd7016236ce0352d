/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/kv_pages.h"
#include "scheduler/kv_pool.h"
#include "scheduler/prefix_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct fixture {
    struct kv_pool *pool;
    struct kv_pages *pages;
    struct prefix_tree *tree;
};

static struct fixture open_tree_over(uint32_t block_count, struct kv_shape shape) {
    struct fixture fixture = {0};
    assert_int_equal(kv_pool_open(&fixture.pool, block_count, NULL), OK);
    assert_int_equal(kv_pages_open(&fixture.pages, &shape, block_count, NULL), OK);
    assert_int_equal(prefix_tree_open(&fixture.tree, fixture.pool, fixture.pages, NULL, NULL), OK);
    return fixture;
}

static struct fixture open_tree(uint32_t block_count) {
    return open_tree_over(block_count, (struct kv_shape){block_count, 1, 0});
}

static void close_tree(struct fixture fixture) {
    prefix_tree_check(fixture.tree);
    prefix_tree_close(fixture.tree);
    kv_pages_close(fixture.pages);
    kv_pool_close(fixture.pool);
}

static const int32_t *tokens_of(int32_t first) {
    static int32_t tokens[BACKEND_BLOCK_TOKENS];
    for (int32_t i = 0; i < (int32_t)BACKEND_BLOCK_TOKENS; i++) tokens[i] = first + i;
    return tokens;
}

static uint32_t add(struct fixture fixture, uint32_t parent, int32_t first) {
    uint32_t block = UINT32_MAX;
    assert_true(prefix_tree_take(fixture.tree, &block));
    prefix_tree_add(fixture.tree, parent, 0, tokens_of(first), block);
    return block;
}

static void a_block_is_found_by_its_parent_and_all_its_tokens(void **state) {
    (void)state;
    struct fixture fixture = open_tree(4);
    uint32_t a = add(fixture, PREFIX_ROOT, 10);
    uint32_t b = add(fixture, a, 20);
    uint32_t found = 99;
    assert_true(prefix_tree_find(fixture.tree, PREFIX_ROOT, 0, tokens_of(10), &found));
    assert_int_equal(found, a);
    assert_true(prefix_tree_find(fixture.tree, a, 0, tokens_of(20), &found));
    assert_int_equal(found, b);
    /* Equal tokens after another prefix are another block. */
    assert_false(prefix_tree_find(fixture.tree, PREFIX_ROOT, 0, tokens_of(20), &found));
    assert_false(prefix_tree_find(fixture.tree, b, 0, tokens_of(20), &found));
    int32_t nearly[BACKEND_BLOCK_TOKENS];
    for (uint32_t i = 0; i < BACKEND_BLOCK_TOKENS; i++) nearly[i] = tokens_of(10)[i];
    nearly[BACKEND_BLOCK_TOKENS - 1]++;
    assert_false(prefix_tree_find(fixture.tree, PREFIX_ROOT, 0, nearly, &found));
    prefix_tree_drop(fixture.tree, b);
    prefix_tree_drop(fixture.tree, a);
    close_tree(fixture);
}

static void children_are_listed_in_order_and_tell_what_they_have_in_common(void **state) {
    (void)state;
    struct fixture fixture = open_tree(5);
    uint32_t a = add(fixture, PREFIX_ROOT, 10);
    uint32_t other = add(fixture, PREFIX_ROOT, 50);
    uint32_t children[3];
    for (int32_t i = 0; i < 3; i++) children[i] = add(fixture, a, 20 + i);
    assert_int_equal(prefix_tree_first_child(fixture.tree, PREFIX_ROOT), a);
    assert_int_equal(prefix_tree_next_child(fixture.tree, a), other);
    assert_int_equal(prefix_tree_next_child(fixture.tree, other), PREFIX_NONE);
    assert_int_equal(prefix_tree_first_child(fixture.tree, children[0]), PREFIX_NONE);
    uint32_t at = prefix_tree_first_child(fixture.tree, a);
    for (uint32_t i = 0; i < 3; i++, at = prefix_tree_next_child(fixture.tree, at))
        assert_int_equal(at, children[i]);
    assert_int_equal(at, PREFIX_NONE);

    int32_t part[BACKEND_BLOCK_TOKENS];
    for (uint32_t i = 0; i < BACKEND_BLOCK_TOKENS; i++) part[i] = i < 7 ? tokens_of(10)[i] : 1000;
    assert_int_equal(prefix_tree_common(fixture.tree, a, 0, part, BACKEND_BLOCK_TOKENS), 7);
    assert_int_equal(prefix_tree_common(fixture.tree, a, 0, part, 5), 5);
    assert_int_equal(prefix_tree_common(fixture.tree, a, 0, part, 0), 0);
    assert_int_equal(prefix_tree_common(fixture.tree, other, 0, part, 16), 0);
    assert_int_equal(prefix_tree_common(fixture.tree, a, 1, part, 16), 0); /* another salt */

    /* The middle one, the last and the first are forgotten. */
    static const uint32_t order[] = {1, 2, 0};
    for (uint32_t i = 0; i < 3; i++) prefix_tree_drop(fixture.tree, children[order[i]]);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t taken;
        assert_true(prefix_tree_take(fixture.tree, &taken));
        assert_int_equal(taken, children[order[i]]);
        prefix_tree_check(fixture.tree);
    }
    assert_int_equal(prefix_tree_first_child(fixture.tree, a), PREFIX_NONE);
    for (uint32_t i = 0; i < 3; i++) prefix_tree_drop(fixture.tree, children[i]);
    prefix_tree_drop(fixture.tree, other);
    prefix_tree_drop(fixture.tree, a);
    close_tree(fixture);
}

static void a_dropped_node_stays_until_its_block_is_needed(void **state) {
    (void)state;
    struct fixture fixture = open_tree(2);
    uint32_t a = add(fixture, PREFIX_ROOT, 10);
    prefix_tree_drop(fixture.tree, a);
    assert_int_equal(kv_pool_cached_count(fixture.pool), 1);
    uint32_t blocks[2];
    assert_true(prefix_tree_take(fixture.tree, &blocks[0]));
    uint32_t found;
    assert_true(prefix_tree_find(fixture.tree, PREFIX_ROOT, 0, tokens_of(10), &found));
    assert_true(prefix_tree_take(fixture.tree, &blocks[1]));
    assert_int_equal(blocks[1], a);
    assert_false(prefix_tree_has(fixture.tree, a));
    assert_false(prefix_tree_find(fixture.tree, PREFIX_ROOT, 0, tokens_of(10), &found));
    assert_false(prefix_tree_take(fixture.tree, &found));
    assert_int_equal(prefix_tree_evictions(fixture.tree), 1);
    prefix_tree_drop(fixture.tree, blocks[0]);
    prefix_tree_drop(fixture.tree, blocks[1]);
    assert_int_equal(kv_pool_free_count(fixture.pool), 2);
    close_tree(fixture);
}

static void leaves_go_before_their_parents_and_the_least_recently_used_first(void **state) {
    (void)state;
    struct fixture fixture = open_tree(5);
    /*   a - b - c        two sequences share a: a b c was dropped first, then a d
     *     `- d */
    uint32_t a = add(fixture, PREFIX_ROOT, 10);
    uint32_t b = add(fixture, a, 20);
    uint32_t c = add(fixture, b, 30);
    kv_pool_hold(fixture.pool, a);
    uint32_t d = add(fixture, a, 40);
    prefix_tree_drop(fixture.tree, c);
    prefix_tree_drop(fixture.tree, b);
    prefix_tree_drop(fixture.tree, a);
    prefix_tree_check(fixture.tree);
    prefix_tree_drop(fixture.tree, d);
    prefix_tree_drop(fixture.tree, a);

    uint32_t taken[5];
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(prefix_tree_take(fixture.tree, &taken[i]));
        prefix_tree_check(fixture.tree);
    }
    assert_int_equal(taken[1], c);
    assert_int_equal(taken[2], b);
    assert_int_equal(taken[3], d);
    assert_int_equal(taken[4], a);
    for (uint32_t i = 0; i < 5; i++) prefix_tree_drop(fixture.tree, taken[i]);
    close_tree(fixture);
}

static void a_used_block_is_never_evicted(void **state) {
    (void)state;
    struct fixture fixture = open_tree(2);
    uint32_t a = add(fixture, PREFIX_ROOT, 10);
    uint32_t b = add(fixture, PREFIX_ROOT, 20);
    prefix_tree_drop(fixture.tree, b);
    uint32_t block;
    assert_true(prefix_tree_take(fixture.tree, &block));
    assert_int_equal(block, b);
    assert_false(prefix_tree_take(fixture.tree, &block));
    prefix_tree_drop(fixture.tree, a);
    prefix_tree_drop(fixture.tree, b);
    close_tree(fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_found_by_its_parent_and_all_its_tokens),
        cmocka_unit_test(children_are_listed_in_order_and_tell_what_they_have_in_common),
        cmocka_unit_test(a_dropped_node_stays_until_its_block_is_needed),
        cmocka_unit_test(leaves_go_before_their_parents_and_the_least_recently_used_first),
        cmocka_unit_test(a_used_block_is_never_evicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
