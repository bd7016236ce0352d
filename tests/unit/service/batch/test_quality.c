/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/quality.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define T (1u << SEGLOG_TRUNCATED)
#define E (1u << SEGLOG_EMPTY)
#define J (1u << SEGLOG_LOOKS_JSON)
#define V (1u << SEGLOG_VALID_JSON)

static void every_sign_is_seen(void **state) {
    (void)state;
    static const struct {
        const char *choices;
        unsigned marks;
    } cases[] = {
        {"[{\"message\":{\"content\":\"Yes.\"},\"finish_reason\":\"stop\"}]", 0},
        {"[{\"message\":{\"content\":\"Yes.\"},\"finish_reason\":\"length\"}]", T},
        {"[{\"message\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]", E},
        {"[{\"message\":{\"content\":\" \\n\\t\"},\"finish_reason\":\"length\"}]", E | T},
        {"[{\"message\":{\"content\":null},\"finish_reason\":\"stop\"}]", E},
        {"[{\"message\":{\"content\":null,\"tool_calls\":[{\"id\":\"1\"}]}}]", 0},
        {"[{\"message\":{\"content\":\"\",\"tool_calls\":[{\"id\":\"1\"}]}}]", 0},
        {"[{\"message\":{\"content\":null,\"refusal\":\"I can't.\"}}]", 0},
        {"[{\"message\":{\"content\":null,\"refusal\":\"\"}}]", E},
        {"[{\"message\":{\"content\":\"{\\\"a\\\": 1}\"}}]", J | V},
        {"[{\"message\":{\"content\":\"{\\\"a\\\": \"}}]", J},
        {"[{\"message\":{\"content\":\"[1, 2] and more\"}}]", J},
        {"[{\"message\":{\"content\":\"```json\\n{\\\"a\\\": [1]}\\n```\"}}]", J | V},
        {"[{\"text\":\"[]\",\"finish_reason\":\"stop\"}]", J | V},
        {"[{\"text\":\"a\"},{\"text\":\"\",\"finish_reason\":\"length\"}]", E | T},
        {"[]", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf body;
        uint8_t marks;
        uint32_t answer;
        buf_init(&body, 4096);
        buf_printf(&body, "{\"id\":\"x\",\"choices\":%s}", cases[i].choices);
        quality_look(buf_str(&body), &marks, &answer);
        if (marks != cases[i].marks) fail_msg("%s: %u", cases[i].choices, marks);
        buf_release(&body);
    }
}

static uint32_t answer_of(const char *body) {
    uint8_t marks;
    uint32_t answer;
    quality_look(str_from(body), &marks, &answer);
    return answer;
}

static void equal_texts_are_one_answer_and_bodies_without_choices_are_none(void **state) {
    (void)state;
    uint32_t one = answer_of("{\"id\":1,\"choices\":[{\"text\":\"A\\u0042\"}]}");
    assert_int_equal(one, answer_of("{\"id\":2,\"choices\":[{\"text\":\"AB\"}]}"));
    assert_int_not_equal(one, answer_of("{\"choices\":[{\"text\":\"AC\"}]}"));
    assert_int_equal(
        one, answer_of("{\"choices\":[{\"message\":{\"content\":null,\"refusal\":\"AB\"}}]}"));
    assert_int_equal(answer_of("{\"data\":[1]}"), 0);
    assert_int_equal(answer_of("{\"choices\":7}"), 0);
}

static void an_alarm_needs_enough_answers_and_a_share_above_its_limit(void **state) {
    (void)state;
    struct batch_extras extras;
    enum quality_share share;
    struct seglog_counts counts = {.successes = 49, .identical = 49};
    batch_extras_parse(NULL, &extras);
    assert_false(quality_is_alarming(&counts, &extras, &share));
    counts.successes = 50;
    assert_true(quality_is_alarming(&counts, &extras, &share));
    assert_int_equal(share, QUALITY_IDENTICAL);
    counts.identical = 1; /* every answer is identical to itself */
    counts.marks[SEGLOG_EMPTY] = 10;
    assert_false(quality_is_alarming(&counts, &extras, &share));
    counts.marks[SEGLOG_EMPTY] = 11;
    assert_true(quality_is_alarming(&counts, &extras, &share));
    assert_int_equal(share, QUALITY_EMPTY);
}

static void json_is_expected_when_half_of_the_answers_look_like_it(void **state) {
    (void)state;
    double shares[QUALITY_SHARES];
    struct seglog_counts counts = {.successes = 100};
    counts.marks[SEGLOG_LOOKS_JSON] = 49;
    quality_shares(&counts, shares);
    assert_true(shares[QUALITY_INVALID_JSON] == 0);
    counts.marks[SEGLOG_LOOKS_JSON] = 60;
    counts.marks[SEGLOG_VALID_JSON] = 55;
    quality_shares(&counts, shares);
    assert_true(shares[QUALITY_INVALID_JSON] > 0.449 && shares[QUALITY_INVALID_JSON] < 0.451);
    counts = (struct seglog_counts){0};
    quality_shares(&counts, shares);
    for (size_t i = 0; i < QUALITY_SHARES; i++) assert_true(shares[i] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sign_is_seen),
        cmocka_unit_test(equal_texts_are_one_answer_and_bodies_without_choices_are_none),
        cmocka_unit_test(an_alarm_needs_enough_answers_and_a_share_above_its_limit),
        cmocka_unit_test(json_is_expected_when_half_of_the_answers_look_like_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
