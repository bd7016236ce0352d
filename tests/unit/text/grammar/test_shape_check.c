/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/shape_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool take(struct shape_check *check, const char *fields, struct refusal *refusal) {
    return shape_check_take(check, str_from(fields), refusal);
}

static void test_each_distinct_shape_is_compiled_once(void **state) {
    (void)state;
    static const char bad[] = "{\"guided_json\":{\"properties\":{\"n\":{\"not\":{}}}}}";
    struct shape_check *check = shape_check_open(SHAPE_CHECK_WORK_MAX);
    struct refusal refusal;
    for (int i = 0; i < 100; i++) {
        assert_true(take(check, "{\"guided_regex\":\"[a-z]+\"}", &refusal));
        assert_true(take(check, "{\"response_format\":{\"type\":\"text\"}}", &refusal));
        assert_false(take(check, bad, &refusal));
        assert_string_equal(refusal.param, "guided_json");
        assert_non_null(strstr(refusal.message, "$.properties.n"));
    }
    struct shape_check_stats stats = shape_check_stats(check);
    assert_int_equal(stats.asked, 200); /* plain text is no shape */
    assert_int_equal(stats.distinct, 2);
    assert_int_equal(stats.refused, 1);
    assert_int_equal(stats.unseen, 0);
    assert_true(stats.bytes_max > 0 && stats.bytes == stats.bytes_max); /* one of two compiles */
    shape_check_close(check);
}

static void test_fields_that_are_wrong_are_refused_as_a_single_request_is(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"{\"response_format\":{\"type\":\"xml\"}}", "response_format.type"},
        {"{\"guided_regex\":\"(\"}", "guided_regex"},
        {"{\"guided_regex\":\"a\",\"guided_choice\":[\"a\"]}", "guided_choice"},
        {"{\"structured_outputs\":{}}", "structured_outputs"},
        /* Readers differ in which of two equal keys counts; so do those of a schema in a text. */
        {"{\"guided_json\":\"{\\\"type\\\":\\\"string\\\",\\\"type\\\":\\\"null\\\"}\"}",
         "guided_json"},
        {"{\"structured_outputs\":{\"structural_tag\":\"{\\\"format\\\":{\\\"type\\\":\\\"any_"
         "text\\\"},"
         "\\\"format\\\":{\\\"type\\\":\\\"const_string\\\",\\\"value\\\":\\\"a\\\"}}\"}}",
         "structured_outputs.structural_tag"},
    };
    struct shape_check *check = shape_check_open(SHAPE_CHECK_WORK_MAX);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct refusal refusal;
        assert_false(take(check, rows[i][0], &refusal));
        assert_string_equal(refusal.param, rows[i][1]);
        assert_int_equal(refusal.status, 400);
    }
    shape_check_close(check);
}

#define TOOL(name, strict, schema)                                                                 \
    "{'type':'function','function':{'name':'" name "'," strict "'parameters':" schema "}}"
#define BAD_SCHEMA "{'properties':{'n':{'not':{}}}}"
#define GOOD_SCHEMA "{'properties':{'n':{'type':'integer'}}}"

/* Fields with ' for ", and the field that is refused; NULL: none. */
static const char *const calls[][2] = {
    {"{'tools':[" TOOL("f", "", BAD_SCHEMA) "]}", NULL},
    {"{'tools':[" TOOL("f", "", BAD_SCHEMA) "],'tool_choice':'auto'}", NULL},
    {"{'tools':[" TOOL("f", "", BAD_SCHEMA) "],'tool_choice':'required'}", "tool_choice"},
    {"{'tools':[" TOOL("f", "'strict':true,", BAD_SCHEMA) "]}", "tools"},
    {"{'tools':[" TOOL("f", "'strict':true,", BAD_SCHEMA) "],'tool_choice':'none'}", NULL},
    {"{'tools':[" TOOL("f", "'strict':true,", GOOD_SCHEMA) "]}", NULL},
    {"{'tools':[" TOOL("f", "", GOOD_SCHEMA) "," TOOL(
         "g", "", BAD_SCHEMA) "],'tool_choice':{'type':"
                              "'function','function':{'name':'g'}}}",
     "tool_choice"},
    {"{'tools':[" TOOL("f", "", GOOD_SCHEMA) "," TOOL("g", "",
                                                      BAD_SCHEMA) "],'tool_choice':{'type':"
                                                                  "'function','name':'f'}}",
     NULL},
    {"{'tools':[" TOOL("f", "", GOOD_SCHEMA) "," TOOL(
         "g", "", BAD_SCHEMA) "],'tool_choice':{'type':"
                              "'allowed_tools','allowed_tools':{'mode':'required','tools':[{'type':"
                              "'function','function':{"
                              "'name':'g'}}]}}}",
     "tool_choice"},
    {"{'tools':[" TOOL("f", "", GOOD_SCHEMA) "," TOOL(
         "g", "", BAD_SCHEMA) "],'tool_choice':{'type':"
                              "'allowed_tools','allowed_tools':{'mode':'auto','tools':[{'type':'"
                              "function','function':{"
                              "'name':'g'}}]}}}",
     NULL},
    {"{'tools':[" TOOL("f", "", "{'type':'string'}") "],'tool_choice':'required'}", NULL},
    {"{'tools':[" TOOL("f", "", BAD_SCHEMA) "],'tool_choice':'required','response_format':{'type':"
                                            "'json_object'}}",
     "tool_choice"},
    /* What is wrong in another way is left to the engine. */
    {"{'tools':7,'tool_choice':{'type':'function'}}", NULL},
    {"{'tools':[1,{'function':2}],'tool_choice':'required'}", NULL},
};

static void test_arguments_of_calls_are_looked_at_where_they_are_held(void **state) {
    (void)state;
    struct shape_check *check = shape_check_open(SHAPE_CHECK_WORK_MAX);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char fields[1024];
        struct refusal refusal;
        snprintf(fields, sizeof fields, "%s", calls[i][0]);
        for (char *at = fields; *at; at++)
            if (*at == '\'') *at = '"';
        bool is_good = take(check, fields, &refusal);
        if (is_good != !calls[i][1]) fail_msg("%s", fields);
        if (is_good) continue;
        assert_string_equal(refusal.param, calls[i][1]);
        assert_non_null(strstr(refusal.message, "].function.parameters: $.properties.n"));
    }
    shape_check_close(check);
}

static void test_more_shapes_than_it_remembers_are_compiled_again(void **state) {
    (void)state;
    struct shape_check *check = shape_check_open(SHAPE_CHECK_WORK_MAX);
    struct refusal refusal;
    for (unsigned i = 0; i < SHAPE_CHECK_KNOWN_MAX + 10; i++) {
        char fields[64];
        bool is_bad = i % 3 == 0;
        snprintf(fields, sizeof fields, "{\"guided_regex\":\"%u%s\"}", i, is_bad ? "(" : "");
        assert_true(take(check, fields, &refusal) == !is_bad);
    }
    assert_false(take(check, "{\"guided_regex\":\"0(\"}", &refusal));
    assert_true(take(check, "{\"guided_regex\":\"1\"}", &refusal));
    assert_int_equal(shape_check_stats(check).distinct, SHAPE_CHECK_KNOWN_MAX + 12);
    shape_check_close(check);
}

static void test_the_work_of_all_compiles_is_bounded(void **state) {
    (void)state;
    struct shape_check *check = shape_check_open(100000);
    struct refusal refusal;
    unsigned count = 0;
    for (; shape_check_stats(check).unseen == 0 && count < 1000; count++) {
        char fields[64];
        snprintf(fields, sizeof fields, "{\"guided_regex\":\"[a-z]{%u}\"}", count + 2);
        assert_true(take(check, fields, &refusal));
    }
    assert_in_range(count, 10, 100);
    assert_int_equal(shape_check_stats(check).distinct, count - 1);
    /* What is wrong is not seen any more, but known shapes are. */
    assert_true(take(check, "{\"guided_regex\":\"(\"}", &refusal));
    assert_true(take(check, "{\"guided_regex\":\"[a-z]{2}\"}", &refusal));
    assert_int_equal(shape_check_stats(check).unseen, 2);
    shape_check_close(check);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_distinct_shape_is_compiled_once),
        cmocka_unit_test(test_fields_that_are_wrong_are_refused_as_a_single_request_is),
        cmocka_unit_test(test_arguments_of_calls_are_looked_at_where_they_are_held),
        cmocka_unit_test(test_more_shapes_than_it_remembers_are_compiled_again),
        cmocka_unit_test(test_the_work_of_all_compiles_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
