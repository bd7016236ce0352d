/* SPDX-License-Identifier: Apache-2.0 */
#include "curation/answer.h"

#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The line of an output file with this body. */
static struct answer read_body(const char *body) {
    struct buf line;
    struct answer answer;
    buf_init(&line, BUF_UNLIMITED);
    buf_printf(&line,
               "{\"id\":\"x\",\"custom_id\":\"c\",\"response\":{\"status_code\":200,"
               "\"request_id\":\"r\",\"body\":%s},\"error\":null}",
               body);
    answer_read(&answer, buf_str(&line));
    buf_release(&line);
    return answer;
}

/* The answer of a chat with this text. */
static struct answer read_text(const char *text) {
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"choices\":[{\"message\":{\"content\":");
    json_write_string(&body, str_from(text));
    buf_add_text(&body, "}}]}");
    struct answer answer = read_body(body.at);
    buf_release(&body);
    return answer;
}

static void assert_object(const struct answer *answer, const char *expected) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    answer_write_object(&text, answer);
    assert_string_equal(text.at, expected);
    buf_release(&text);
}

static void assert_text(const struct answer *answer, const char *expected) {
    assert_int_equal(answer->text.bytes, strlen(expected));
    if (answer->text.bytes > 0) assert_memory_equal(answer->text.at, expected, answer->text.bytes);
}

static void answers_of_each_form_are_read(void **state) {
    (void)state;
    static const struct {
        const char *body;
        enum answer_kind kind;
        const char *object, *text;
    } cases[] = {
        {"{\"choices\":[{\"message\":{\"content\":\"{\\\"a\\\":1}\"}}]}", ANSWER_TEXT, "{\"a\":1}",
         "{\"a\":1}"},
        {"{\"choices\":[{\"message\":{\"content\":\"hello\"}}]}", ANSWER_TEXT, "null", "hello"},
        {"{\"choices\":[{\"text\":\"```json\\n{\\\"a\\\":1}\\n```\"}]}", ANSWER_TEXT, "{\"a\":1}",
         "```json\n{\"a\":1}\n```"},
        {"{\"choices\":[{\"message\":{\"content\":null,\"tool_calls\":[{\"function\":{\"name\":"
         "\"f\",\"arguments\":\"{\\\"x\\\":true}\"}}]}}]}",
         ANSWER_CALL, "{\"x\":true}", ""},
        {"{\"answers\":[{\"type\":\"predicate\",\"name\":\"p\",\"probability\":0.5},{\"type\":"
         "\"choice\",\"name\":null,\"choice\":\"b\"},{\"type\":\"score\",\"score\":1.4,"
         "\"probabilities\":[{\"value\":0,\"probability\":0.2},{\"value\":1,\"probability\":0.3},"
         "{\"value\":2,\"probability\":0.5}]}]}",
         ANSWER_DECISIONS, "{\"p\":true,\"1\":\"b\",\"2\":2}", ""},
        {"{\"answers\":{\"n\":{\"type\":\"noul\",\"noul\":0.49},\"s\":{\"type\":\"score\","
         "\"score\":0.6,\"probabilities\":{\"0\":0.4,\"1\":0.6}}}}",
         ANSWER_DECISIONS, "{\"n\":false,\"s\":1}", ""},
        {"{\"choices\":[{\"message\":{\"content\":null,\"refusal\":\"I can't.\"}}]}", ANSWER_TEXT,
         "null", "I can't."},
        {"{\"choices\":[{\"index\":1,\"text\":\"b\"},{\"index\":0,\"text\":\"a\"}]}", ANSWER_TEXT,
         "null", "a"},
        {"{\"choices\":[{\"message\":{\"content\":[{\"text\":\"a\"},{\"text\":\"b\"}]}}]}",
         ANSWER_TEXT, "null", "ab"},
        {"{\"choices\":[{\"message\":{\"content\":\"\",\"function_call\":{\"name\":\"f\","
         "\"arguments\":"
         "{\"x\":true}}}}]}",
         ANSWER_CALL, "{\"x\":true}", ""},
        {"{\"data\":[{\"embedding\":[1]}]}", ANSWER_NONE, "null", ""},
        {"{\"choices\":[]}", ANSWER_NONE, "null", ""},
        {"{\"choices\":7}", ANSWER_NONE, "null", ""},
        {"{\"answers\":[7,null,{}]}", ANSWER_DECISIONS, "{}", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer answer = read_body(cases[i].body);
        assert_int_equal(answer.kind, cases[i].kind);
        assert_object(&answer, cases[i].object);
        assert_text(&answer, cases[i].text);
        answer_release(&answer);
    }
}

static void a_line_without_a_good_response_has_no_answer(void **state) {
    (void)state;
    static const char refused[] = "{\"custom_id\":\"c\",\"response\":{\"status_code\":400,"
                                  "\"body\":{\"choices\":[{\"text\":\"x\"}]}}}";
    const char *const lines[] = {
        refused, "{\"custom_id\":\"c\",\"response\":null,\"error\":{\"code\":\"batch_expired\"}}",
        "[1]", "no JSON", ""};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct answer answer;
        answer_read(&answer, str_from(lines[i]));
        assert_int_equal(answer.kind, ANSWER_NONE);
        answer_correct(&answer, STR("{\"a\":1}"));
        assert_object(&answer, "null");
        answer_release(&answer);
    }
}

static void a_correction_changes_the_bytes_of_its_fields_alone(void **state) {
    (void)state;
    static const struct {
        const char *before, *fields, *after;
    } cases[] = {
        {"{ \"a\" : 1.50, \"b\":[1, 2] }", "{\"b\":3}", "{ \"a\" : 1.50, \"b\":3 }"},
        {"{\"a\":1}", "{\"b\":0.10000000000000001}", "{\"a\":1,\"b\":0.1}"},
        {"{\"a\":1,\"b\":2}", "{\"b\":4,\"a\":3}", "{\"a\":3,\"b\":4}"},
        {"{ }", "{\"a\":\"\\u00e9\"}", "{\"a\":\"\xc3\xa9\" }"},
        {"{\"\\u0061\":1}", "{\"a\":2}", "{\"\\u0061\":2}"},
        {"```json\n{\"a\":1}\n```", "{\"a\":null}", "```json\n{\"a\":null}\n```"},
        {"a text", "{\".text\":\"another\"}", "another"},
        {"{\"a\":1}", "{\".text\":\"{\\\"b\\\":2}\"}", "{\"b\":2}"},
        {"a text", "{\"a\":1}", "{\"a\":1}"},
        {"{\"a\":1}", "{\"a\":1.0000000000000002}", "{\"a\":1.0000000000000002}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer answer = read_text(cases[i].before);
        answer_correct(&answer, str_from(cases[i].fields));
        assert_text(&answer, cases[i].after);
        answer_release(&answer);
    }
}

static void a_corrected_refusal_is_a_content(void **state) {
    (void)state;
    struct buf text;
    struct answer answer =
        read_body("{\"choices\":[{\"message\":{\"content\":null,\"refusal\":\"I can't.\"}}]}");
    assert_true(answer.is_refusal);
    answer_correct(&answer, STR("{\".text\":\"Yes.\"}"));
    assert_text(&answer, "Yes.");
    assert_false(answer.is_refusal);
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, answer.place);
    assert_string_equal(text.at, "{\"content\":\"Yes.\",\"refusal\":null}");
    buf_release(&text);
    answer_release(&answer);
}

static void a_corrected_decision_says_so_in_its_line(void **state) {
    (void)state;
    struct buf text;
    struct answer answer = read_body(
        "{\"answers\":[{\"name\":\"p\",\"probability\":0.25},{\"name\":\"c\",\"choice\":\"x\"},"
        "{\"name\":\"s\",\"score\":1.5}]}");
    answer_correct(&answer, STR("{\"c\":\"y\",\"p\":true,\"s\":0}"));
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, answer.place);
    assert_string_equal(text.at, "[{\"name\":\"p\",\"probability\":1.0},{\"name\":\"c\",\"choice\":"
                                 "\"y\"},{\"name\":\"s\",\"score\":0}]");
    assert_object(&answer, "{\"p\":true,\"c\":\"y\",\"s\":0}");
    buf_release(&text);
    answer_release(&answer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_of_each_form_are_read),
        cmocka_unit_test(a_line_without_a_good_response_has_no_answer),
        cmocka_unit_test(a_correction_changes_the_bytes_of_its_fields_alone),
        cmocka_unit_test(a_corrected_refusal_is_a_content),
        cmocka_unit_test(a_corrected_decision_says_so_in_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
