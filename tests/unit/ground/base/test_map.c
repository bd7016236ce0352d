/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct str key_of(char text[32], unsigned number) {
    snprintf(text, 32, "key-%u", number);
    return str_from(text);
}

static void what_was_put_is_found_and_nothing_else(void **state) {
    (void)state;
    struct map map;
    char text[32];
    map_init(&map);
    for (unsigned i = 0; i < 5000; i++) assert_true(map_put(&map, key_of(text, i), i * 3u));
    for (unsigned i = 0; i < 5000; i++) {
        uint64_t value;
        assert_true(map_get(&map, key_of(text, i), &value));
        assert_int_equal(value, i * 3u);
    }
    for (unsigned i = 5000; i < 6000; i++) assert_false(map_get(&map, key_of(text, i), NULL));
    map_release(&map);
}

static void a_second_put_replaces_and_a_put_new_does_not(void **state) {
    (void)state;
    struct map map;
    uint64_t value;
    map_init(&map);
    assert_true(map_put(&map, STR("a"), 1));
    assert_false(map_put(&map, STR("a"), 2));
    assert_false(map_put_new(&map, STR("a"), 3, &value));
    assert_int_equal(value, 2);
    assert_true(map_get(&map, STR("a"), &value));
    assert_int_equal(value, 2);
    map_release(&map);
}

static void the_empty_key_and_keys_with_nul_are_keys(void **state) {
    (void)state;
    struct map map;
    uint64_t value;
    map_init(&map);
    assert_true(map_put(&map, (struct str){NULL, 0}, 1));
    assert_true(map_put(&map, (struct str){"a\0b", 3}, 2));
    assert_true(map_put(&map, (struct str){"a\0c", 3}, 3));
    assert_true(map_get(&map, STR(""), &value));
    assert_int_equal(value, 1);
    assert_true(map_get(&map, (struct str){"a\0c", 3}, &value));
    assert_int_equal(value, 3);
    map_release(&map);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_is_found_and_nothing_else),
        cmocka_unit_test(a_second_put_replaces_and_a_put_new_does_not),
        cmocka_unit_test(the_empty_key_and_keys_with_nul_are_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
