/* SPDX-License-Identifier: Apache-2.0 */
#include "answers/text_search.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cmocka.h>

static bool finds(struct str whole, struct str part) {
    struct text_search *search;
    text_search_open(&search, part);
    bool found = text_search_finds(search, whole);
    text_search_close(search);
    return found;
}

static void ascii_letters_have_no_case_and_other_bytes_do(void **state) {
    (void)state;
    assert_true(finds(STR("No HIRE"), STR("hire")));
    assert_true(finds(STR("no hire"), STR("HIRE")));
    assert_true(finds(STR("abc"), STR("")));
    assert_true(finds(STR(""), STR("")));
    assert_false(finds(STR("ab"), STR("abc")));
    assert_false(finds(STR("a@"), STR("a`"))); /* they differ in the bit of the case */
    assert_false(finds(STR("{"), STR("[")));
    assert_false(finds(STR("\xC3\x84"), STR("\xC3\xA4")));
}

static void texts_that_repeat_themselves_have_the_answers_of_a_plain_reference(void **state) {
    (void)state;
    uint64_t draws = 0;
    char whole[41] = "", part[9] = "";
    for (int round = 0; round < 200000; round++) {
        size_t whole_bytes = (size_t)(rng_unit_at(7, draws++) * 40);
        size_t part_bytes = (size_t)(rng_unit_at(7, draws++) * 8);
        for (size_t i = 0; i < whole_bytes; i++)
            whole[i] = "aAbB"[(size_t)(rng_unit_at(7, draws++) * 4)];
        for (size_t i = 0; i < part_bytes; i++)
            part[i] = "aAbB"[(size_t)(rng_unit_at(7, draws++) * 4)];
        bool expected = false;
        for (size_t at = 0; at + part_bytes <= whole_bytes; at++)
            expected = expected || strncasecmp(whole + at, part, part_bytes) == 0;
        if (finds((struct str){whole, whole_bytes}, (struct str){part, part_bytes}) != expected)
            fail_msg("'%.*s' in '%.*s'", (int)part_bytes, part, (int)whole_bytes, whole);
    }
}

/* A search that begins again at each byte would look at 137 billion of them, some minutes. */
static void the_worst_texts_cost_two_looks_per_byte(void **state) {
    (void)state;
    const size_t bytes = (size_t)128 << 20;
    char part[1025], *whole = malloc(bytes);
    assert_non_null(whole);
    memset(whole, 'a', bytes);
    memset(part, 'A', 1024);
    part[1023] = 'b';
    assert_false(finds((struct str){whole, bytes}, (struct str){part, 1024}));
    whole[bytes - 1] = 'B';
    assert_true(finds((struct str){whole, bytes}, (struct str){part, 1024}));
    free(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ascii_letters_have_no_case_and_other_bytes_do),
        cmocka_unit_test(texts_that_repeat_themselves_have_the_answers_of_a_plain_reference),
        cmocka_unit_test(the_worst_texts_cost_two_looks_per_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
