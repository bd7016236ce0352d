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
                        "\"[0.5,1]\",,\n10,,,stop\n");
    assert_int_equal(table_answers_write(answers, STR("[]"), STR("{}"), &out, &error), ERR_CORRUPT);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_stands_behind_its_row),
        cmocka_unit_test(each_property_of_a_schema_is_a_column),
        cmocka_unit_test(no_answer_is_lost),
        cmocka_unit_test(any_results_are_a_table),
        cmocka_unit_test(rows_of_one_table_have_the_same_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
