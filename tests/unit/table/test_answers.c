/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "table/answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A plan with a schema of these properties, or without a schema. */
static struct table_plan *plan_of(const char *schema) {
    char paths[2][40];
    struct table_plan *plan;
    struct error error;
    const char *texts[] = {"x", schema};
    for (size_t i = 0; i < 2; i++) {
        snprintf(paths[i], 40, "/tmp/quern-test-answers-XXXXXX");
        int fd = mkstemp(paths[i]);
        assert_true(fd >= 0);
        if (texts[i]) assert_int_equal(os_write_all(fd, texts[i], strlen(texts[i]), &error), OK);
        os_close(fd);
    }
    struct table_options options = {
        .kind = TABLE_CSV, .prompt = paths[0], .schema = schema ? paths[1] : NULL};
    assert_int_equal(table_plan_open(&plan, &options, &error), OK);
    unlink(paths[0]);
    unlink(paths[1]);
    return plan;
}

#define ROW(row) "{\"custom_id\":\"7\",\"row\":" row ",\"body\":{}}"
#define ANSWER(content)                                                                            \
    "{\"custom_id\":\"7\",\"response\":{\"status_code\":200,\"body\":{\"choices\":[{\"index\":0,"  \
    "\"message\":{\"role\":\"assistant\",\"content\":" content                                     \
    "},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}},"    \
    "\"error\":null}"

static void check(const char *schema, struct table_answers_form form, const char *request,
                  const char *result, const char *expected) {
    struct table_plan *plan = plan_of(schema);
    struct table_answers *answers = table_answers_open(plan, &form);
    struct error error;
    struct buf out;
    buf_init(&out, 65536);
    assert_int_equal(
        table_answers_write(answers, str_from(request), str_from(result), &out, &error), OK);
    assert_string_equal(out.at, expected);
    table_answers_close(answers);
    table_plan_close(plan);
    buf_release(&out);
}

static const struct table_answers_form csv = {.kind = TABLE_CSV, .csv = {',', false}};
static const struct table_answers_form jsonl = {.kind = TABLE_JSONL, .has_tokens = true};

static void an_answer_stands_behind_its_row(void **state) {
    (void)state;
    check(NULL, csv, ROW("{\"a\":\"x,y\",\"b\":null,\"c\":\"\",\"d\":1.50,\"e\":[1, 2]}"),
          ANSWER("\"good\\n\""),
          "a,b,c,d,e,answer,error,finish_reason\n\"x,y\",,\"\",1.50,\"[1, 2]\",\"good\n\",,stop\n");
    check(NULL, jsonl, ROW("{\"a\":\"x\",\"b\":null}"), ANSWER("\"good\""),
          "{\"a\":\"x\",\"b\":null,\"answer\":\"good\",\"error\":null,\"finish_reason\":\"stop\","
          "\"prompt_tokens\":5,\"completion_tokens\":2}\n");
}

#define SCHEMA "{\"properties\":{\"score\":{},\"a\":{},\"tags\":{}}}"

static void each_property_of_a_schema_is_a_column(void **state) {
    (void)state;
    check(SCHEMA, csv, ROW("{\"a\":\"x\"}"),
          ANSWER("\"{\\\"a\\\": \\\"y\\\", \\\"tags\\\": [\\n1], \\\"more\\\": 2}\""),
          "a,score,answer_a,tags,error,finish_reason\nx,,y,\"[\n1]\",,stop\n");
    check(SCHEMA, jsonl, ROW("{\"a\":\"x\"}"),
          ANSWER("\"{\\\"tags\\\": [\\n1], \\\"score\\\": 0.50}\""),
          "{\"a\":\"x\",\"score\":0.50,\"answer_a\":null,\"tags\":[ 1],\"error\":null,"
          "\"finish_reason\":\"stop\",\"prompt_tokens\":5,\"completion_tokens\":2}\n");
}

static void no_answer_is_lost(void **state) {
    (void)state;
    check(SCHEMA, csv, ROW("{\"a\":\"x\"}"), ANSWER("\"{\\\"score\\\": 1\""),
          "a,score,answer_a,tags,error,finish_reason\nx,,,,\"invalid_answer: {\"\"score\"\": "
          "1\",stop\n");
    check(
        NULL, csv, ROW("{\"a\":\"x\"}"),
        "{\"custom_id\":\"7\",\"response\":null,\"error\":{\"code\":\"batch_expired\",\"message\":"
        "\"Too late, \\\"sorry\\\".\"}}",
        "a,answer,error,finish_reason\nx,,\"batch_expired: Too late, \"\"sorry\"\".\",\n");
    check(SCHEMA, csv, ROW("{\"a\":\"x\"}"),
          "{\"custom_id\":\"7\",\"response\":{\"status_code\":400,\"body\":{\"error\":{\"message\":"
          "\"No.\",\"code\":null}}},\"error\":null}",
          "a,score,answer_a,tags,error,finish_reason\nx,,,,No.,\n");
}

/* Requests that are no rows of a table have their ids as rows. */
static void any_results_are_a_table(void **state) {
    (void)state;
    struct table_answers *answers = table_answers_open(NULL, &csv);
    struct error error;
    struct buf out;
    buf_init(&out, 65536);
    const char *pairs[][2] = {
        {ROW("{\"a\":1}"), ANSWER("\"x\"")},
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
    table_answers_close(answers);
    buf_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_stands_behind_its_row),
        cmocka_unit_test(each_property_of_a_schema_is_a_column),
        cmocka_unit_test(no_answer_is_lost),
        cmocka_unit_test(any_results_are_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
