/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "cluster/bus_memory.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct heard {
    size_t count;
    char text[256];
};

static void hear(void *context, struct str node, struct str bytes) {
    struct heard *heard = context;
    size_t at = strlen(heard->text);
    heard->count++;
    snprintf(heard->text + at, sizeof heard->text - at, "%.*s:%.*s ", STR_ARGS(node),
             STR_ARGS(bytes));
}

static void work_goes_to_its_node_once_and_in_order(void **state) {
    (void)state;
    struct bus_memory *memory = bus_memory_open();
    struct bus_place place = bus_memory_place(memory);
    struct bus *server = place.open(place.context), *node = place.open(place.context);
    struct error error;
    struct heard heard = {0};
    server->ops->put(server, "a", 1, 1, STR("x"));
    server->ops->put(server, "b", 1, 1, STR("no"));
    server->ops->put(server, "a", 1, 2, STR("y"));
    assert_int_equal(server->ops->flush(server, &error), OK);
    assert_int_equal(node->ops->work(node, "a", false, 0, hear, &heard, &error), OK);
    assert_int_equal(node->ops->work(node, "a", false, 0, hear, &heard, &error), OK);
    assert_string_equal(heard.text, "a:x a:y ");
    assert_int_equal(node->ops->work(node, "a", true, 0, hear, &heard, &error), OK);
    assert_string_equal(heard.text, "a:x a:y a:x a:y ");
    server->ops->put(server, "a", 1, 2, STR("z"));
    assert_int_equal(server->ops->flush(server, &error), ERR_UNAVAILABLE);
    uint64_t epoch;
    bool follows, was_emptied;
    assert_int_equal(server->ops->lead(server, "one", &epoch, &follows, &error), OK);
    assert_int_equal(server->ops->look(server, hear, &heard, &was_emptied, &error), OK);
    assert_int_equal(server->bytes, strlen("x") + strlen("y") + strlen("no"));
    server->ops->trim(server, "a", 1, 1);
    assert_int_equal(bus_memory_packs(memory), 2);
    node->ops->close(node);
    server->ops->close(server);
    bus_memory_close(memory);
}

static void the_flush_says_that_work_could_not_leave(void **state) {
    (void)state;
    struct bus_memory *memory = bus_memory_open();
    struct bus_place place = bus_memory_place(memory);
    struct bus *server = place.open(place.context);
    struct error error;
    server->ops->put(server, "a", 1, 1, STR("x"));
    assert_int_equal(server->ops->flush(server, &error), OK);
    bus_memory_set_away(memory, true);
    server->ops->trim(server, "a", 1, 1);
    bus_memory_set_away(memory, false);
    assert_int_equal(server->ops->flush(server, &error), ERR_UNAVAILABLE);
    bus_memory_lose_trim(memory);
    server->ops->forget(server, "a");
    assert_int_equal(server->ops->flush(server, &error), ERR_UNAVAILABLE);
    assert_int_equal(bus_memory_packs(memory), 1);
    server->ops->forget(server, "a");
    assert_int_equal(server->ops->flush(server, &error), OK);
    assert_int_equal(bus_memory_packs(memory), 0);
    server->ops->close(server);
    bus_memory_close(memory);
}

static void another_server_waits_until_the_first_is_silent(void **state) {
    (void)state;
    clock_make_movable();
    struct bus_memory *memory = bus_memory_open();
    struct bus_place place = bus_memory_place(memory);
    struct bus *one = place.open(place.context), *two = place.open(place.context);
    struct error error;
    struct heard heard = {0};
    uint64_t first, second;
    bool was_emptied, follows;
    assert_int_equal(one->ops->lead(one, "one", &first, &follows, &error), OK);
    assert_int_equal(two->ops->lead(two, "two", &second, &follows, &error), ERR_CONFLICT);
    clock_move_ms(BUS_LEAD_TTL_MS + 1);
    assert_int_equal(two->ops->lead(two, "two", &second, &follows, &error), OK);
    assert_true(second > first);
    assert_int_equal(one->ops->look(one, hear, &heard, &was_emptied, &error), ERR_CONFLICT);
    assert_int_equal(two->ops->look(two, hear, &heard, &was_emptied, &error), OK);
    one->ops->close(one);
    two->ops->close(two);
    bus_memory_close(memory);
}

static void both_sides_see_that_it_was_emptied(void **state) {
    (void)state;
    struct bus_memory *memory = bus_memory_open();
    struct bus_place place = bus_memory_place(memory);
    struct bus *server = place.open(place.context), *node = place.open(place.context);
    struct error error;
    struct heard heard = {0};
    uint64_t epoch;
    bool server_sees, node_sees, follows;
    assert_int_equal(server->ops->lead(server, "one", &epoch, &follows, &error), OK);
    assert_int_equal(node->ops->beat(node, "a", STR("x"), &node_sees, &error), OK);
    assert_int_equal(server->ops->look(server, hear, &heard, &server_sees, &error), OK);
    assert_false(node_sees || server_sees);
    assert_string_equal(heard.text, "a:x ");
    bus_memory_empty(memory);
    assert_int_equal(server->ops->look(server, hear, &heard, &server_sees, &error), OK);
    assert_int_equal(node->ops->beat(node, "a", STR("x"), &node_sees, &error), OK);
    assert_true(node_sees && server_sees);
    node->ops->close(node);
    server->ops->close(server);
    bus_memory_close(memory);
}

/* Settled packs go, the others are those of the next server of the directory, whoever put them. */
static void results_that_were_not_settled_are_those_of_the_next_epoch(void **state) {
    (void)state;
    struct bus_memory *memory = bus_memory_open();
    struct bus_place place = bus_memory_place(memory);
    struct bus *server = place.open(place.context), *node = place.open(place.context);
    struct error error;
    struct heard heard = {0}, again = {0};
    uint64_t first, second, third;
    bool follows;
    assert_int_equal(server->ops->lead(server, "one", &first, &follows, &error), OK);
    assert_false(follows);
    assert_int_equal(node->ops->answer(node, "a", first, STR("x"), &error), OK);
    assert_int_equal(node->ops->answer(node, "a", first, STR("y"), &error), OK);
    assert_int_equal(server->ops->results(server, first, false, 0, hear, &heard, &error), OK);
    assert_int_equal(server->ops->results(server, first, false, 0, hear, &heard, &error), OK);
    assert_string_equal(heard.text, "a:x a:y ");
    assert_int_equal(server->ops->results(server, first, true, 0, hear, &heard, &error), OK);
    assert_string_equal(heard.text, "a:x a:y a:x a:y ");
    server->ops->settle(server, first, 1);
    assert_int_equal(server->ops->resign(server, &error), OK);
    assert_int_equal(server->ops->lead(server, "one", &second, &follows, &error), OK);
    assert_true(follows && second > first);
    assert_int_equal(node->ops->answer(node, "a", first, STR("z"), &error), ERR_NOT_FOUND);
    assert_int_equal(server->ops->results(server, second, true, 0, hear, &again, &error), OK);
    assert_string_equal(again.text, "a:y ");
    assert_int_equal(node->ops->answer(node, "a", second, STR("z"), &error), OK);
    assert_int_equal(server->ops->resign(server, &error), OK);
    assert_int_equal(node->ops->answer(node, "a", second, STR("z"), &error), ERR_NOT_FOUND);
    assert_int_equal(server->ops->lead(server, "another", &third, &follows, &error), OK);
    assert_false(follows);
    assert_int_equal(bus_memory_packs(memory), 0);
    node->ops->close(node);
    server->ops->close(server);
    bus_memory_close(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_goes_to_its_node_once_and_in_order),
        cmocka_unit_test(the_flush_says_that_work_could_not_leave),
        cmocka_unit_test(another_server_waits_until_the_first_is_silent),
        cmocka_unit_test(results_that_were_not_settled_are_those_of_the_next_epoch),
        cmocka_unit_test(both_sides_see_that_it_was_emptied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
