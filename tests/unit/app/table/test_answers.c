/* SPDX-License-Identifier: Apache-2.0 */
#include "table/answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ROW(row) "{\"custom_id\":\"7\",\"row\":" row ",\"body\":{}}"
#define ROW_TO(schema, row)                                                                        \
    "{\"custom_id\":\"7\",\"row\":" row                                                            \
    ",\"body\":{\"response_format\":{\"type\":\"json_schema\","                                    \
    "\"json_schema\":{\"name\":\"answer\",\"schema\":" schema "}}}}"
#define ANSWER(content)                                                                            \
    "{\"custom_id\":\"7\",\"response\":{\"status_code\":200,\"body\":{\"choices\":[{\"index\":0,"  \
    "\"message\":{\"role\":\"assistant\",\"content\":" content                                     \
    "},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}},"    \
    "\"error\":null}"

static void check(struct table_answers_form form, const char *request, const char *result,
                  const char *expected) {
    struct table_answers *answers = table_answers_open(&form);
    struct error error;
    struct buf out;
    buf_init(&out, 65536);
    assert_int_equal(
        table_answers_write(answers, str_from(request), str_from(result), &out, &error), OK);
    assert_string_equal(out.at, expected);
    table_answers_close(answers);
    buf_release(&out);
}

static const struct table_answers_form csv = {.kind = TABLE_CSV, .csv = {',', false}};
static const struct table_answers_form jsonl = {.kind = TABLE_JSONL, .has_tokens = true};

static void an_answer_stands_behind_its_row(void **state) {
    (void)state;
    check(csv, ROW("{\"a\":\"x,y\",\"b\":null,\"c\":\"\",\"d\":1.50,\"e\":[1, 2]}"),
          ANSWER("\"good\\n\""),
          "a,b,c,d,e,answer,error,finish_reason\n\"x,y\",,\"\",1.50,\"[1, 2]\",\"good\n\",,stop\n");
    check(jsonl, ROW("{\"a\":\"x\",\"b\":null}"), ANSWER("\"good\""),
          "{\"a\":\"x\",\"b\":null,\"answer\":\"good\",\"error\":null,\"finish_reason\":\"stop\","
          "\"prompt_tokens\":5,\"completion_tokens\":2}\n");
}

#define SCHEMA "{\"properties\":{\"score\":{},\"a\":{},\"tags\":{}}}"

static void each_property_of_a_schema_is_a_column(void **state) {
    (void)state;
    check(csv, ROW_TO(SCHEMA, "{\"a\":\"x\"}"),
          ANSWER("\"{\\\"a\\\": \\\"y\\\", \\\"tags\\\": [\\n1], \\\"more\\\": 2}\""),
          "a,score,answer_a,tags,error,finish_reason\nx,,y,\"[\n1]\",,stop\n");
    check(jsonl, ROW_TO(SCHEMA, "{\"a\":\"x\"}"),
          ANSWER("\"{\\\"tags\\\": [\\n1], \\\"score\\\": 0.50}\""),
          "{\"a\":\"x\",\"score\":0.50,\"answer_a\":null,\"tags\":[ 1],\"error\":null,"
          "\"finish_reason\":\"stop\",\"prompt_tokens\":5,\"completion_tokens\":2}\n");
}

static void no_answer_is_lost(void **state) {
    (void)state;
    check(csv, ROW_TO(SCHEMA, "{\"a\":\"x\"}"), ANSWER("\"{\\\"score\\\": 1\""),
          "a,score,answer_a,tags,error,finish_reason\nx,,,,\"invalid_answer: {\"\"score\"\": "
          "1\",stop\n");
    check(
        csv, ROW("{\"a\":\"x\"}"),
        "{\"custom_id\":\"7\",\"response\":null,\"error\":{\"code\":\"batch_expired\",\"message\":"
        "\"Too late, \\\"sorry\\\".\"}}",
        "a,answer,error,finish_reason\nx,,\"batch_expired: Too late, \"\"sorry\"\".\",\n");
    check(csv, ROW_TO(SCHEMA, "{\"a\":\"x\"}"),
          "{\"custom_id\":\"7\",\"response\":{\"status_code\":400,\"body\":{\"error\":{\"message\":"
          "\"No.\",\"code\":null}}},\"error\":null}",
          "a,score,answer_a,tags,error,finish_reason\nx,,,,No.,\n");
}

/* Requests that are no rows of a table have their ids as rows. */
static void any_results_are_a_table(void **state) {
    (void)state;
    struct table_answers *answers = table_answers_open(&csv);
    struct error error;
    struct buf out;
    buf_init(&out, 65536);
    const char *pairs[][2] = {
        {"{\"custom_id\":\"7\",\"row\":[1]}", ANSWER("\"x\"")},
        {"{\"custom_id\":\"=\\\"8\",\"body\":{}}",
         "{\"custom_id\":\"8\",\"response\":{\"body\":{\"choices\":[{\"text\":\"y\"}]}}}"},
        {"{\"custom_id\":\"9\"}",
         "{\"response\":{\"body\":{\"data\":[{\"embedding\":[0.5,1],\"index\":0}]}}}"},
        {"{\"custom_id\":\"10\"}", ANSWER("null")},
    };
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(table_answers_write(answers, str_from(pairs[i][0]), str_from(pairs[i][1]),
                                             &out, &error),
                         OK);
    assert_string_equal(out.at,
                        "custom_id,answer,error,finish_reason\n7,x,,stop\n\"=\"\"8\",y,,\n9,"
                        "\"[0.5,1]\",,\n10,,no_answer: The response has no text and no call; its "
                        "finish_reason is stop.,stop\n");
    assert_int_equal(table_answers_write(answers, STR("[]"), STR("{}"), &out, &error), ERR_INVALID);
    assert_int_equal(table_answers_write(answers, STR("{\"custom_id\":"), STR("{}"), &out, &error),
                     ERR_INVALID);
    assert_int_equal(table_answers_write(answers, STR("{\"custom_id\":\"7\"}"),
                                         STR("{\"error\":NaN}"), &out, &error),
                     ERR_CORRUPT);
    assert_int_equal(
        table_answers_write(answers, STR(ROW("{\"a\":1}")), STR(ANSWER("\"x\"")), &out, &error),
        ERR_INVALID);
    table_answers_close(answers);
    buf_release(&out);
}

static void rows_of_one_table_have_the_same_columns(void **state) {
    (void)state;
    static const char *const others[] = {ROW("{\"b\":1,\"a\":2}"), ROW("{\"a\":1}"),
                                         ROW("{\"a\":1,\"b\":2,\"c\":3}"), "{\"custom_id\":\"8\"}"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct table_answers *answers = table_answers_open(&csv);
        struct error error;
        struct buf out;
        buf_init(&out, 65536);
        assert_int_equal(table_answers_write(answers, STR(ROW("{\"a\":1,\"b\":2}")),
                                             STR(ANSWER("\"x\"")), &out, &error),
                         OK);
        assert_int_equal(
            table_answers_write(answers, str_from(others[i]), STR(ANSWER("\"x\"")), &out, &error),
            ERR_INVALID);
        table_answers_close(answers);
        buf_release(&out);
    }
}

/* The cells behind the custom_id of a result whose request asks for no schema, and whether the row
 * shows all of it. */
static void check_cells(const char *result, const char *cells, bool showed_all) {
    struct table_answers *answers = table_answers_open(&csv);
    struct error error;
    struct buf out;
    buf_init(&out, 65536);
    assert_int_equal(
        table_answers_write(answers, STR("{\"custom_id\":\"7\"}"), str_from(result), &out, &error),
        OK);
    assert_string_equal(out.at + strlen("custom_id,answer,error,finish_reason\n7,"), cells);
    assert_int_equal(table_answers_showed_all(answers), showed_all);
    table_answers_close(answers);
    buf_release(&out);
}

#define RESPONSE(body) "{\"custom_id\":\"7\",\"response\":{\"status_code\":200,\"body\":" body "}}"
#define CHOICE(index, message)                                                                     \
    "{\"index\":" index ",\"message\":" message ",\"finish_reason\":\"stop\"}"

static void the_choice_with_the_lowest_index_is_the_answer(void **state) {
    (void)state;
    check_cells(RESPONSE("{\"choices\":[" CHOICE("1", "{\"content\":\"b\"}") "," CHOICE(
                    "0", "{\"content\":\"a\"}") "]}"),
                "a,,stop\n", false);
    check_cells(RESPONSE("{\"choices\":[{\"text\":\"a\"},{\"text\":\"b\"}]}"), "a,,\n", false);
    check_cells(
        RESPONSE("{\"data\":[{\"index\":1,\"embedding\":[1]},{\"index\":0,\"embedding\":[2]}"
                 "]}"),
        "[2],,\n", false);
}

static void calls_next_to_an_empty_text_are_the_answer(void **state) {
    (void)state;
#define CALLS "[{\"function\":{\"name\":\"f\"}}]"
    static const char *const cells = "\"[{\"\"function\"\":{\"\"name\"\":\"\"f\"\"}}]\",,stop\n";
    check_cells(
        RESPONSE("{\"choices\":[" CHOICE("0", "{\"content\":\"\",\"tool_calls\":" CALLS "}") "]}"),
        cells, true);
    check_cells(
        RESPONSE("{\"choices\":[" CHOICE("0", "{\"content\":null,\"tool_calls\":" CALLS "}") "]}"),
        cells, true);
    check_cells(RESPONSE("{\"choices\":[" CHOICE(
                    "0", "{\"content\":\"I look.\",\"tool_calls\":" CALLS "}") "]}"),
                "I look.,,stop\n", false);
    check_cells(RESPONSE("{\"choices\":[" CHOICE("0", "{\"content\":\"\",\"tool_calls\":[]}") "]}"),
                "\"\",,stop\n", true);
    check_cells(RESPONSE("{\"choices\":[" CHOICE(
                    "0", "{\"content\":\"x\",\"reasoning_content\":\"why\"}") "]}"),
                "x,,stop\n", false);
    check_cells(
        RESPONSE("{\"choices\":[" CHOICE("0", "{\"content\":\"\",\"refusal\":\"No.\"}") "]}"),
        "No.,,stop\n", true);
    check_cells(
        RESPONSE("{\"choices\":[" CHOICE("0", "{\"content\":null,\"tool_calls\":[]}") "]}"),
        ",no_answer: The response has no text and no call; its finish_reason is stop.,stop\n",
        false);
}

static void no_row_is_empty_without_a_word(void **state) {
    (void)state;
    static const struct {
        const char *result, *cells;
    } cases[] = {
        {"{}", ",no_answer: The result has neither a response nor an error.,\n"},
        {"{\"response\":null,\"error\":null}",
         ",no_answer: The result has neither a response nor an error.,\n"},
        {"{\"response\":null,\"error\":{}}",
         ",no_answer: The result has neither a response nor an error.,\n"},
        {RESPONSE("null"), ",no_answer: The response has no body that is an object.,\n"},
        {RESPONSE("{\"choices\":[]}"), ",no_answer: The response has no text and no call.,\n"},
        {RESPONSE(
             "{\"choices\":[{\"message\":{\"content\":null},\"finish_reason\":\"content_filter\"}"
             "]}"),
         ",no_answer: The response has no text and no call; its finish_reason is "
         "content_filter.,content_filter\n"},
        {"{\"error\":\"boom\"}", ",boom,\n"},
        {"{\"error\":[1]}", ",[1],\n"},
        {"{\"error\":{\"message\":\"m\",\"type\":\"t\",\"code\":null}}", ",t: m,\n"},
        {"{\"error\":{\"message\":\"m\",\"code\":429}}", ",429: m,\n"},
        {"{\"error\":{\"error\":{\"message\":\"m\"}}}", ",m,\n"},
        {"{\"response\":{\"status_code\":500,\"body\":\"<html>\"}}", ",status_500: <html>,\n"},
        {"{\"response\":{\"status_code\":500,\"body\":{\"detail\":\"d\"}}}", ",status_500: d,\n"},
        {"{\"response\":{\"status_code\":\"503\",\"body\":{\"object\":\"error\",\"message\":\"m\"}}"
         "}",
         ",status_503: m,\n"},
        {"{\"response\":{\"status_code\":500}}", ",status_500,\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool has_error = strstr(cases[i].result, "\"error\":\"") ||
                         strstr(cases[i].result, "\"error\":[") ||
                         strstr(cases[i].result, "\"error\":{\"");
        check_cells(cases[i].result, cases[i].cells, has_error);
    }
    check_cells("{\"response\":{\"status_code\":500,\"body\":{\"choices\":[{\"text\":\"x\"}]}}}",
                "x,status_500,\n", true);
}

#define STRICT                                                                                     \
    "{\"properties\":{\"score\":{\"type\":\"integer\"},\"why\":{\"type\":[\"string\",\"null\"]},"  \
    "\"kind\":{"                                                                                   \
    "\"enum\":[\"x\",\"y\"]}},\"required\":[\"score\"],\"additionalProperties\":false}"

static void an_answer_that_misses_its_schema_is_named(void **state) {
    (void)state;
    static const struct {
        const char *content, *cells;
    } cases[] = {
        {"{'score': 7}", "a,7,,,,stop\n"},
        {"{'score': 7.0, 'why': null, 'kind': 'y'}", "a,7.0,,y,,stop\n"},
        {"{'why': 'w'}",
         "a,,,,\"invalid_answer: 'score' is missing: {\"\"why\"\": \"\"w\"\"}\",stop\n"},
        {"{'score': null}",
         "a,,,,\"invalid_answer: 'score' is null: {\"\"score\"\": null}\",stop\n"},
        {"{'score': '7'}",
         "a,,,,\"invalid_answer: 'score' is \"\"7\"\": {\"\"score\"\": \"\"7\"\"}\",stop\n"},
        {"{'score': 1.5}", "a,,,,\"invalid_answer: 'score' is 1.5: {\"\"score\"\": 1.5}\",stop\n"},
        {"{'score': 1, 'kind': 'z'}",
         "a,,,,\"invalid_answer: 'kind' is \"\"z\"\": {\"\"score\"\": 1, "
         "\"\"kind\"\": \"\"z\"\"}\",stop\n"},
        {"{'score': 1, 'more': 2}",
         "a,,,,\"invalid_answer: it has a member that the schema does not have, or one twice: "
         "{\"\"score\"\": 1, \"\"more\"\": 2}\",stop\n"},
        {"", "a,,,,invalid_answer: ,stop\n"},
        {"[7]", "a,,,,invalid_answer: [7],stop\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char content[200] = "\"", result[700], expected[300];
        size_t at = 1;
        for (const char *c = cases[i].content; *c; c++) {
            if (*c == '\'') content[at++] = '\\';
            content[at++] = *c == '\'' ? '"' : *c;
        }
        content[at++] = '"';
        content[at] = '\0';
        snprintf(result, sizeof result, ANSWER("%s"), content);
        snprintf(expected, sizeof expected, "n,score,why,kind,error,finish_reason\n%s",
                 cases[i].cells);
        check(csv, ROW_TO(STRICT, "{\"n\":\"a\"}"), result, expected);
    }
    check(
        csv, ROW_TO(STRICT, "{\"n\":\"a\"}"),
        RESPONSE("{\"choices\":[" CHOICE("0", "{\"content\":null,\"refusal\":\"I can't.\"}") "]}"),
        "n,score,why,kind,error,finish_reason\na,,,,refusal: I can't.,stop\n");
    /* The answer of an upstream that quern refused lies in the error's body. */
    check(csv, ROW_TO(STRICT, "{\"n\":\"a\"}"),
          RESPONSE("{\"error\":{\"code\":\"schema_mismatch\",\"message\":\"M.\"},\"answer\":{"
                   "\"choices\":[" CHOICE("0", "{\"content\":\"KEEP\"}") "]}}"),
          "n,score,why,kind,error,finish_reason\na,,,,schema_mismatch: M. invalid_answer: "
          "KEEP,stop\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_stands_behind_its_row),
        cmocka_unit_test(each_property_of_a_schema_is_a_column),
        cmocka_unit_test(no_answer_is_lost),
        cmocka_unit_test(any_results_are_a_table),
        cmocka_unit_test(the_choice_with_the_lowest_index_is_the_answer),
        cmocka_unit_test(calls_next_to_an_empty_text_are_the_answer),
        cmocka_unit_test(no_row_is_empty_without_a_word),
        cmocka_unit_test(an_answer_that_misses_its_schema_is_named),
        cmocka_unit_test(rows_of_one_table_have_the_same_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
