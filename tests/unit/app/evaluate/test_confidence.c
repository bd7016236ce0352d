/* SPDX-License-Identifier: Apache-2.0 */
/* How sure a result line says that its model was. */
#include "evaluate/confidence.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define UNKNOWN (-1.0)

static double confidence(const char *text) {
    double is = 0;
    bool is_answered;
    struct error error = {.text = ""};
    if (confidence_of(str_from(text), &is_answered, &is, &error) != OK)
        fail_msg("%s: %s", text, error.text);
    return isnan(is) ? UNKNOWN : is;
}

static double of_body(const char *body) {
    char line[2048];
    snprintf(line, sizeof line,
             "{\"custom_id\":\"a\",\"response\":{\"status_code\":200,\"body\":%s},\"error\":null}",
             body);
    return confidence(line);
}

static void check(const char *body, double expected) {
    double is = of_body(body);
    if (fabs(is - expected) > 1e-12) fail_msg("%s: %.15f instead of %.15f", body, is, expected);
}

static void decisions_are_as_sure_as_their_least_sure_question(void **state) {
    (void)state;
    check("{\"answers\":[{\"probability\":0.9}]}", 0.8);
    check("{\"answers\":[{\"probability\":0.05}]}", 0.9);
    check("{\"answers\":[{\"probability\":1},{\"score\":2.5,\"confidence\":0.25}]}", 0.25);
    check("{\"answers\":{\"a\":{\"noul\":0.75},\"b\":{\"choice\":\"x\",\"confidence\":0.6}}}", 0.5);
    check("{\"answers\":[{\"probability\":1},{\"text\":\"?\"}]}", UNKNOWN);
    check("{\"answers\":[]}", UNKNOWN);
}

static void choices_agree_by_what_they_say(void **state) {
    (void)state;
    check("{\"choices\":[{\"text\":\"a\"},{\"text\":\"b\"},{\"text\":\"a\"},{\"text\":\"a\"}]}",
          0.75);
    check("{\"choices\":[{\"message\":{\"content\":\"{\\\"a\\\":1,\\\"b\\\":2}\"}},"
          "{\"message\":{\"content\":\"{ \\\"b\\\": 2, \\\"a\\\": 1 }\","
          "\"reasoning_content\":\"hm\"}}]}",
          1);
    check("{\"choices\":[{\"message\":{\"content\":\"1\"}},{\"message\":{\"content\":\"2\"}}]}",
          0.5);
    check("{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
          "\"arguments\":\"{\\\"x\\\":1}\"}}]}},{\"message\":{\"tool_calls\":[{\"id\":\"2\","
          "\"function\":{\"name\":\"f\",\"arguments\":\"{ \\\"x\\\": 1 }\"}}]}}]}",
          1);
    check("{\"choices\":[{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}},"
          "{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"g\"}}]}}]}",
          0.5);
}

static void one_answer_or_a_failed_line_has_none(void **state) {
    struct error error;
    double is;
    bool is_answered = true;
    (void)state;
    check("{\"choices\":[{\"text\":\"a\"}]}", UNKNOWN);
    check("{\"data\":[]}", UNKNOWN);
    check("7", UNKNOWN);
    assert_true(confidence("{\"response\":{\"status_code\":500,\"body\":{\"answers\":"
                           "[{\"probability\":1}]}},\"error\":null}") == UNKNOWN);
    assert_int_equal(confidence_of(STR("{\"response\":{\"status_code\":200,\"body\":{\"answers\":"
                                       "[{\"probability\":1}]}},\"error\":{\"code\":\"x\"}}"),
                                   &is_answered, &is, &error),
                     OK);
    assert_false(is_answered);
    assert_int_equal(confidence_of(STR("[]"), &is_answered, &is, &error), ERR_INVALID);
    assert_int_equal(confidence_of(STR("{"), &is_answered, &is, &error), ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions_are_as_sure_as_their_least_sure_question),
        cmocka_unit_test(choices_agree_by_what_they_say),
        cmocka_unit_test(one_answer_or_a_failed_line_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
