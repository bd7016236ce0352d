/* SPDX-License-Identifier: Apache-2.0 */
/* Salts of lines: each line has its own, one that was taken out cannot be had again, and all others
 * stay as they were. */
#include "proof/line_salts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LINES 300
#define LAST ((UINT64_C(1) << LINE_SALTS_LEVELS) - 1)

static void take_all(struct line_salts *salts, unsigned char all[LINES][SHA256_BYTES]) {
    for (uint64_t i = 0; i < LINES; i++) assert_true(line_salts_get(salts, i, all[i]));
}

static void a_salt_is_the_same_in_any_order_and_differs_between_lines(void **state) {
    (void)state;
    struct line_salts salts;
    unsigned char all[LINES][SHA256_BYTES], salt[SHA256_BYTES];
    line_salts_make(&salts);
    take_all(&salts, all);
    srand(3);
    for (int i = 0; i < 2000; i++) {
        uint64_t line = (uint64_t)rand() % LINES;
        assert_true(line_salts_get(&salts, line, salt));
        assert_memory_equal(salt, all[line], sizeof salt);
    }
    for (int i = 0; i < LINES; i++)
        for (int k = 0; k < i; k++) assert_memory_not_equal(all[i], all[k], SHA256_BYTES);
    assert_true(line_salts_get(&salts, LAST, salt));
    assert_false(line_salts_get(&salts, LAST + 1, salt));
    line_salts_release(&salts);
}

/* No node that is kept is above the line, and none of the way to it is kept. */
static void assert_gone(const struct line_salts *before, const struct line_salts *after,
                        uint64_t line) {
    struct line_salts way = *before;
    for (size_t i = 0; i < after->count; i++) {
        const struct line_salt_node *node = &after->nodes[i];
        assert_int_not_equal(line >> (LINE_SALTS_LEVELS - node->level), node->index);
        for (int level = 0; level <= LINE_SALTS_LEVELS; level++)
            assert_memory_not_equal(node->seed, way.way[level], SHA256_BYTES);
    }
}

static void a_salt_that_was_taken_out_is_gone_and_all_others_stay(void **state) {
    (void)state;
    static const uint64_t first[] = {0, LAST, 7, 7, 6, 299, 128};
    struct line_salts salts, whole;
    unsigned char all[LINES][SHA256_BYTES], salt[SHA256_BYTES];
    bool is_out[LINES] = {false};
    line_salts_make(&salts);
    json_t *json = line_salts_json(&salts);
    struct error error;
    assert_int_equal(line_salts_read(&whole, json, &error), OK);
    json_decref(json);
    take_all(&salts, all);
    srand(5);
    for (size_t i = 0; i < 120; i++) {
        uint64_t line = i < sizeof first / sizeof *first ? first[i] : (uint64_t)rand() % LINES;
        assert_true(line_salts_get(&whole, line, salt));
        line_salts_remove(&salts, &line, 1);
        if (line < LINES) is_out[line] = true;
        assert_false(line_salts_get(&salts, line, salt));
        assert_gone(&whole, &salts, line);
        for (uint64_t k = 0; k < LINES; k++) {
            assert_int_equal(line_salts_get(&salts, k, salt), !is_out[k]);
            if (!is_out[k]) assert_memory_equal(salt, all[k], sizeof salt);
        }
    }
    for (uint64_t k = 0; k < LINES; k++) line_salts_remove(&salts, &k, 1);
    for (uint64_t k = 0; k < LINES; k++) assert_false(line_salts_get(&salts, k, salt));
    line_salts_release(&salts);
    line_salts_release(&whole);
}

static void many_lines_at_once_leave_what_single_ones_leave(void **state) {
    (void)state;
    struct line_salts single, many;
    struct error error;
    uint64_t lines[LINES + 2];
    srand(7);
    for (int round = 0; round < 60; round++) {
        size_t count = 0;
        line_salts_make(&single);
        json_t *json = line_salts_json(&single);
        assert_int_equal(line_salts_read(&many, json, &error), OK);
        json_decref(json);
        for (int again = 0; again < 2; again++) {
            count = 0;
            for (uint64_t line = 0; line < LINES; line++)
                if (rand() % (round + 1) == 0) lines[count++] = line;
            if (round % 2) lines[count++] = LAST;
            lines[count] = LAST + 1; /* no line of a file */
            line_salts_remove(&many, lines, count + 1);
            for (size_t i = count; i-- > 0;) line_salts_remove(&single, &lines[i], 1);
        }
        json_t *one = line_salts_json(&single), *other = line_salts_json(&many);
        assert_true(json_equal(one, other));
        json_decref(one);
        json_decref(other);
        line_salts_release(&single);
        line_salts_release(&many);
    }
}

static void the_json_reads_back_and_each_other_spelling_is_refused(void **state) {
    (void)state;
    struct line_salts salts, again;
    struct error error;
    unsigned char one[SHA256_BYTES], other[SHA256_BYTES];
    line_salts_make(&salts);
    line_salts_remove(&salts, &(uint64_t){5}, 1);
    json_t *json = line_salts_json(&salts);
    assert_int_equal(line_salts_read(&again, json, &error), OK);
    assert_int_equal(again.count, LINE_SALTS_LEVELS);
    for (uint64_t line = 0; line < 50; line++) {
        assert_int_equal(line_salts_get(&salts, line, one), line != 5);
        assert_int_equal(line_salts_get(&again, line, other), line != 5);
        if (line != 5) assert_memory_equal(one, other, sizeof one);
    }
    line_salts_release(&again);
#define DIGITS "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
    static const char *const bad[] = {"",
                                      "0 0",
                                      "0 0 " DIGITS "0",
                                      "0 1 " DIGITS,
                                      "33 0 " DIGITS,
                                      "00 0 " DIGITS,
                                      "0 0  " DIGITS,
                                      "1 2 " DIGITS,
                                      "-1 0 " DIGITS};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *list = json_pack("[s]", bad[i]);
        if (line_salts_read(&again, list, &error) != ERR_CORRUPT) fail_msg("%s", bad[i]);
        json_decref(list);
    }
    json_t *above = json_pack("[s,s]", "1 0 " DIGITS, "2 1 " DIGITS);
    assert_int_equal(line_salts_read(&again, above, &error), ERR_CORRUPT);
    json_decref(above);
    json_decref(json);
    line_salts_release(&salts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_salt_is_the_same_in_any_order_and_differs_between_lines),
        cmocka_unit_test(a_salt_that_was_taken_out_is_gone_and_all_others_stay),
        cmocka_unit_test(many_lines_at_once_leave_what_single_ones_leave),
        cmocka_unit_test(the_json_reads_back_and_each_other_spelling_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
