/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/state_places.h"

#include "scheduler/prefix_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NODES 8u

static const struct state_steps later = {.composed = 100};

static struct state_places *open_places(uint32_t count) {
    struct state_places *places = NULL;
    assert_int_equal(state_places_open(&places, count, NODES, NULL), OK);
    return places;
}

static struct state_prefix prefix_of(uint32_t node, uint32_t tail_count, int32_t first) {
    struct state_prefix prefix = {.node = node, .tail_count = tail_count};
    for (uint32_t i = 0; i < tail_count; i++) prefix.tail[i] = first + (int32_t)i;
    return prefix;
}

static uint32_t take(struct state_places *places) {
    uint32_t place = STATE_NONE;
    assert_true(state_places_take(places, later, &place));
    return place;
}

static uint32_t store(struct state_places *places, uint32_t node, uint32_t tail_count,
                      int32_t first) {
    const struct state_prefix prefix = prefix_of(node, tail_count, first);
    uint32_t place = take(places);
    state_places_store(places, place, &prefix);
    return place;
}

static bool has(const struct state_places *places, uint32_t node, uint32_t tail_count,
                int32_t first) {
    const struct state_prefix prefix = prefix_of(node, tail_count, first);
    return state_places_find(places, &prefix) != STATE_NONE;
}

static void close_places(struct state_places *places, uint32_t pins) {
    assert_int_equal(state_places_check(places), pins);
    state_places_close(places);
}

static void the_state_used_longest_ago_is_forgotten_first(void **state) {
    (void)state;
    struct state_places *places = open_places(4);
    uint32_t a = store(places, 0, 0, 0);
    store(places, 1, 3, 10);
    store(places, 1, 4, 10);
    take(places);
    state_places_touch(places, a);
    take(places);
    assert_false(has(places, 1, 3, 10));
    take(places);
    assert_false(has(places, 1, 4, 10));
    assert_true(has(places, 0, 0, 0));
    take(places);
    assert_int_equal(state_places_evictions(places), 3);
    uint32_t none;
    assert_false(state_places_take(places, later, &none));
    close_places(places, 0);
}

static void a_state_serves_sequences_that_have_its_tail_and_its_salt(void **state) {
    (void)state;
    struct state_places *places = open_places(3);
    struct state_prefix salted = prefix_of(PREFIX_ROOT, 3, 10);
    salted.salt = 7;
    uint32_t root = take(places);
    state_places_store(places, root, &salted);
    uint32_t node = store(places, 2, 3, 10), length = 0;
    assert_true(state_places_has_tail(places, root, 7, salted.tail, 3, &length));
    assert_int_equal(length, 3);
    assert_false(state_places_has_tail(places, root, 8, salted.tail, 3, &length));
    assert_false(state_places_has_tail(places, root, 7, salted.tail, 2, &length));
    assert_false(state_places_has_tail(places, root, 7, salted.tail + 1, 2, &length));
    assert_true(state_places_has_tail(places, node, 8, salted.tail, 3, &length));
    assert_int_equal(state_places_first(places, 2), node);
    assert_int_equal(state_places_next(places, node), STATE_NONE);
    assert_int_equal(state_places_first(places, 3), STATE_NONE);
    close_places(places, 0);
}

static void the_states_of_a_forgotten_node_are_gone(void **state) {
    (void)state;
    struct state_places *places = open_places(4);
    store(places, 1, 0, 0);
    store(places, 1, 5, 10);
    store(places, 1, 5, 30);
    uint32_t other = store(places, 2, 5, 10);
    state_places_forget_node(places, 1);
    assert_int_equal(state_places_free_count(places), 3);
    assert_int_equal(state_places_stored_count(places), 1);
    assert_int_equal(state_places_first(places, 1), STATE_NONE);
    assert_int_equal(state_places_first(places, 2), other);
    close_places(places, 0);
}

static void a_pinned_state_is_not_forgotten(void **state) {
    (void)state;
    struct state_places *places = open_places(2);
    uint32_t a = store(places, 0, 0, 0), b = store(places, 1, 0, 0);
    state_places_pin(places, a);
    assert_true(state_places_can_take(places, later, STATE_NONE));
    assert_false(state_places_can_take(places, later, b));
    assert_int_equal(take(places), b);
    assert_false(state_places_can_take(places, later, STATE_NONE));
    state_places_unpin(places, a);
    assert_int_equal(take(places), a);
    close_places(places, 0);
}

/* A place that a step touches has no other writer in it, nor in a step that passes it. */
static void a_place_of_a_step_under_way_is_not_taken(void **state) {
    (void)state;
    const struct state_steps main_step = {.composed = 5};
    const struct state_steps passing = {.composed = 6, .passed = 5};
    const struct state_steps passing_too = {.composed = 7, .passed = 5};
    struct state_places *places = open_places(3);
    uint32_t read = store(places, 0, 0, 0), written = store(places, 1, 0, 0);
    uint32_t freed = take(places);
    state_places_note_read(places, read, main_step);
    state_places_note_written(places, written, main_step);
    state_places_note_written(places, freed, main_step);
    state_places_free(places, freed);
    assert_int_equal(state_places_written_in(places, written), 5);
    assert_false(state_places_can_take(places, main_step, STATE_NONE));
    assert_false(state_places_can_take(places, passing, STATE_NONE));
    /* A step that passes may read what the other reads. */
    state_places_note_read(places, read, passing);
    assert_false(state_places_can_take(places, passing_too, STATE_NONE));
    assert_true(state_places_can_take(places, (struct state_steps){.composed = 8}, STATE_NONE));
    close_places(places, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_state_used_longest_ago_is_forgotten_first),
        cmocka_unit_test(a_state_serves_sequences_that_have_its_tail_and_its_salt),
        cmocka_unit_test(the_states_of_a_forgotten_node_are_gone),
        cmocka_unit_test(a_pinned_state_is_not_forgotten),
        cmocka_unit_test(a_place_of_a_step_under_way_is_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
