/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void memory_comes_zeroed_and_aligned(void **state) {
    (void)state;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    for (size_t bytes = 1; bytes < 5000; bytes += 37) {
        unsigned char *at = arena_alloc(&arena, bytes);
        assert_non_null(at);
        assert_int_equal((uintptr_t)at % 16, 0);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(at[i], 0);
        at[0] = at[bytes - 1] = 0xFF;
    }
    arena_release(&arena);
}

static void the_cap_is_never_passed(void **state) {
    (void)state;
    struct arena arena;
    arena_init(&arena, 1000);
    assert_non_null(arena_alloc(&arena, 900));
    assert_null(arena_alloc(&arena, 200));
    assert_null(arena_array(&arena, SIZE_MAX / 2, 4));
    arena_release(&arena);
}

static void a_copy_ends_in_nul(void **state) {
    (void)state;
    struct arena arena;
    arena_init(&arena, 1000);
    struct str copy = arena_copy(&arena, STR("abcdef"));
    assert_int_equal(copy.bytes, 6);
    assert_string_equal(copy.at, "abcdef");
    arena_release(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_comes_zeroed_and_aligned),
        cmocka_unit_test(the_cap_is_never_passed),
        cmocka_unit_test(a_copy_ends_in_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
