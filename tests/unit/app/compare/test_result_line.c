/* SPDX-License-Identifier: Apache-2.0 */
/* Result lines and the values that they are compared by. */
#include "compare/result_line.h"

#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The values of an answered line with that body, as JSON. */
static void check_values(const char *body, const char *expected) {
    struct buf text, id, out;
    struct result_line line;
    struct error error;
    buf_init(&text, 1 << 16);
    buf_init(&id, 1 << 10);
    buf_init(&out, 1 << 16);
    buf_printf(&text, "{\"custom_id\":\"\\u00e9\",\"response\":{\"status_code\":200,\"body\":%s}}",
               body);
    assert_int_equal(result_line_read(&line, buf_str(&text), true, &id, &error), OK);
    assert_true(line.is_answered && str_is(line.custom_id, "\xC3\xA9"));
    json_write(&out, line.values);
    assert_string_equal(out.at, expected);
    result_line_release(&line);
    buf_release(&text);
    buf_release(&id);
    buf_release(&out);
}

#define CHAT(content) "{\"choices\":[{\"message\":{\"content\":\"" content "\"}}]}"

static void a_json_answer_has_a_value_per_member(void **state) {
    (void)state;
    check_values(CHAT("{\\\"a\\\":{\\\"b\\\":1,\\\"c\\\":\\\"x\\\"},\\\"d\\\":[1,2],\\\"e\\\":{}}"),
                 "{\"a.b\":1,\"a.c\":\"x\",\"d\":[1,2],\"e\":{}}");
    check_values(CHAT("```json\\n{\\\"a\\\": 2}\\n```"), "{\"a\":2}");
    check_values(CHAT("[1]"), "{\"(text)\":[1]}");
}

static void another_text_is_one_value(void **state) {
    (void)state;
    check_values(CHAT("Good"), "{\"(text)\":\"Good\"}");
    check_values(CHAT(" 7.5 "), "{\"(text)\":7.5}");
    check_values(CHAT("true"), "{\"(text)\":\"true\"}");
    check_values(CHAT("```"), "{\"(text)\":\"```\"}");
    check_values("{\"choices\":[{\"text\":\"a\"}]}", "{\"(text)\":\"a\"}");
}

static void a_call_of_a_tool_has_its_name_and_arguments(void **state) {
    (void)state;
    check_values("{\"choices\":[{\"message\":{\"content\":null,\"tool_calls\":[{\"function\":"
                 "{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]}}]}",
                 "{\"call\":\"f\",\"f.x\":1}");
    check_values("{\"choices\":[{\"message\":{\"content\":\"\",\"function_call\":"
                 "{\"name\":\"f\",\"arguments\":{\"x\":1}}}}]}",
                 "{\"call\":\"f\",\"f.x\":1}");
    check_values(
        "{\"choices\":[{\"message\":{\"content\":\"I look.\",\"tool_calls\":[{\"function\":"
        "{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}",
        "{\"call\":\"f\",\"f\":{},\"(text)\":\"I look.\"}");
}

static void a_refusal_is_a_text(void **state) {
    (void)state;
    check_values("{\"choices\":[{\"message\":{\"content\":\"\",\"refusal\":\"I can't.\"}}]}",
                 "{\"(text)\":\"I can't.\"}");
    check_values("{\"choices\":[{\"message\":{\"content\":null,\"refusal\":\"I can't.\"}}]}",
                 "{\"(text)\":\"I can't.\"}");
}

static void decisions_have_labels_and_probabilities(void **state) {
    (void)state;
    check_values("{\"answers\":[{\"type\":\"predicate\",\"name\":\"p\",\"probability\":0.75},"
                 "{\"type\":\"choice\",\"name\":null,\"choice\":\"ops\"},"
                 "{\"type\":\"score\",\"name\":\"s\",\"score\":1.5}]}",
                 "{\"p\":true,\"p.probability\":0.75,\"1\":\"ops\",\"s\":1.5}");
    check_values("{\"answers\":{\"q\":{\"type\":\"noul\",\"noul\":0.25}}}",
                 "{\"q\":false,\"q.probability\":0.25}");
}

static void a_body_of_another_form_is_one_value(void **state) {
    (void)state;
    check_values("{\"data\":[1]}", "{\"(body)\":{\"data\":[1]}}");
}

static void a_failed_line_has_no_values_and_another_text_is_refused(void **state) {
    (void)state;
    struct result_line line;
    struct buf id;
    struct error error;
    buf_init(&id, 1 << 10);
    assert_int_equal(result_line_read(&line,
                                      STR("{\"custom_id\":\"a\",\"response\":{\"status_code\":500,"
                                          "\"body\":{}},\"error\":null}"),
                                      true, &id, &error),
                     OK);
    assert_true(!line.is_answered && !line.values);
    assert_int_equal(result_line_read(&line,
                                      STR("{\"custom_id\":\"a\",\"response\":null,"
                                          "\"error\":{\"code\":\"x\"}}"),
                                      true, &id, &error),
                     OK);
    assert_false(line.is_answered);
    static const char *const bad[] = {
        "", "[]", "{}", "{\"custom_id\":1}", "{\"custom_id\":\"a\"", "{\"custom_id\":\"\xff\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(result_line_read(&line, str_from(bad[i]), true, &id, &error), ERR_INVALID);
    buf_release(&id);
}

static void tokens_are_read_in_both_spellings(void **state) {
    (void)state;
    struct result_line line;
    struct buf id;
    struct error error;
    buf_init(&id, 1 << 10);
    static const char *const texts[] = {
        "{\"custom_id\":\"a\",\"response\":{\"status_code\":200,\"body\":{\"usage\":{"
        "\"prompt_tokens\":5,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":"
        "3}}}}}",
        "{\"custom_id\":\"a\",\"response\":{\"status_code\":200,\"body\":{\"usage\":{"
        "\"input_tokens\":5,\"output_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":3}}}}"
        "}"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(result_line_read(&line, str_from(texts[i]), false, &id, &error), OK);
        assert_int_equal(line.usage.prompt_tokens, 5);
        assert_int_equal(line.usage.completion_tokens, 7);
        assert_int_equal(line.usage.cached_tokens, 3);
    }
    buf_release(&id);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_json_answer_has_a_value_per_member),
        cmocka_unit_test(another_text_is_one_value),
        cmocka_unit_test(a_call_of_a_tool_has_its_name_and_arguments),
        cmocka_unit_test(a_refusal_is_a_text),
        cmocka_unit_test(decisions_have_labels_and_probabilities),
        cmocka_unit_test(a_body_of_another_form_is_one_value),
        cmocka_unit_test(a_failed_line_has_no_values_and_another_text_is_refused),
        cmocka_unit_test(tokens_are_read_in_both_spellings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
