/* SPDX-License-Identifier: Apache-2.0 */
/* Which results of one request are the same. */
#include "replay/answer_match.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RESULT(id, body)                                                                           \
    "{\"id\":\"" id                                                                                \
    "\",\"custom_id\":\"a\",\"response\":{\"status_code\":200,\"request_id\":\"" id                \
    "\",\"body\":{\"id\":\"" id "\"," body "}},\"error\":null}"
#define CHAT(id, usage, content)                                                                   \
    RESULT(id,                                                                                     \
           "\"usage\":{\"prompt_tokens\":" usage "},\"choices\":[{\"index\":0,"                    \
           "\"finish_reason\":\"stop\",\"message\":{\"role\":\"assistant\",\"content\":\"" content \
           "\"}}]")
#define DECISION(id, probability, choice)                                                          \
    RESULT(id, "\"answers\":[{\"name\":\"fit\",\"probability\":" probability "},{\"name\":"        \
               "\"level\",\"choice\":\"" choice "\"}]")

static void check(const char *one, const char *other, enum answer_match wanted) {
    enum answer_match match, back;
    struct error error;
    if (answer_match(str_from(one), str_from(other), &match, &error) != OK ||
        answer_match(str_from(other), str_from(one), &back, &error) != OK)
        fail_msg("%s", error.text);
    if (match != wanted || back != wanted) fail_msg("%d instead of %d: %s", match, wanted, other);
}

static void ids_and_counts_of_a_cache_decide_nothing(void **state) {
    (void)state;
    check(CHAT("x", "3", "good"), CHAT("y", "4", "good"), ANSWER_BIT_EQUAL);
    check(CHAT("x", "3", "good"), CHAT("x", "3", "Good"), ANSWER_DIFFERS);
}

static void json_means_the_same_in_every_spelling(void **state) {
    (void)state;
    check(CHAT("x", "3", "{\\\"a\\\":1,\\\"b\\\":2}"),
          CHAT("x", "3", "{\\\"b\\\": 2, \\\"a\\\": 1}"), ANSWER_SAME_MEANING);
    check(CHAT("x", "3", "{\\\"a\\\":1}"), CHAT("x", "3", "{\\\"a\\\":2}"), ANSWER_DIFFERS);
    check(CHAT("x", "3", "{\\\"a\\\":1}"), CHAT("x", "3", "a: 1"), ANSWER_DIFFERS);
}

static void decisions_mean_the_same_if_they_decide_the_same(void **state) {
    (void)state;
    check(DECISION("x", "0.75", "high"), DECISION("y", "0.75", "high"), ANSWER_BIT_EQUAL);
    check(DECISION("x", "0.75", "high"), DECISION("x", "0.74", "high"), ANSWER_SAME_MEANING);
    check(DECISION("x", "0.75", "high"), DECISION("x", "0.25", "high"), ANSWER_DIFFERS);
    check(DECISION("x", "0.75", "high"), DECISION("x", "0.75", "low"), ANSWER_DIFFERS);
}

static void an_error_equals_only_the_same_error(void **state) {
    (void)state;
#define FAILED(code)                                                                               \
    "{\"id\":\"x\",\"custom_id\":\"a\",\"response\":null,\"error\":{\"code\":\"" code "\"}}"
    check(FAILED("one"), FAILED("one"), ANSWER_BIT_EQUAL);
    check(FAILED("one"), FAILED("two"), ANSWER_DIFFERS);
    check(FAILED("one"), CHAT("x", "3", "good"), ANSWER_DIFFERS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_and_counts_of_a_cache_decide_nothing),
        cmocka_unit_test(json_means_the_same_in_every_spelling),
        cmocka_unit_test(decisions_mean_the_same_if_they_decide_the_same),
        cmocka_unit_test(an_error_equals_only_the_same_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
