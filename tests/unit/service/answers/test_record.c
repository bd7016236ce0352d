/* SPDX-License-Identifier: Apache-2.0 */
#include "answers/record.h"
#include "answers/table.h"
#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ID "batch_req_0123456789abcdef0123456789abcdef"

/* --- a walk as one text: name=value; … --- */

static void say(struct buf *buf, struct str name, const struct record_value *value) {
    buf_printf(buf, "%.*s=", STR_ARGS(name));
    if (value->kind == RECORD_TEXT)
        buf_printf(buf, "'%.*s'", STR_ARGS(value->text));
    else if (value->kind == RECORD_BOOL)
        buf_add_text(buf, value->number != 0 ? "true" : "false");
    else
        buf_printf(buf, "%.6g", value->number);
    buf_add_byte(buf, ' ');
}

static void say_fixed(void *context, unsigned field, const struct record_value *value) {
    assert_true(field < TABLE_FIXED_COUNT);
    say(context, str_from(table_fixed_names[field]), value);
}

static void say_field(void *context, struct str name, const struct record_value *value) {
    say(context, name, value);
}

static uint64_t labels; /* labels in the last walk */

static bool walk(struct str line, struct buf *said) {
    struct record record;
    struct record_walk walk = {said, say_fixed, say_field, NULL};
    record_init(&record);
    bool is_read = record_read(&record, line);
    if (is_read) record_each(&record, &walk);
    labels = record.labels;
    record_release(&record);
    return is_read;
}

static void expect(const char *line, const char *wanted) {
    struct buf said;
    buf_init(&said, BUF_UNLIMITED);
    assert_true(walk(str_from(line), &said));
    assert_string_equal(said.at ? said.at : "", wanted);
    buf_release(&said);
}

static void walk_body(const char *body, int status, struct buf *said) {
    struct buf line;
    buf_init(&line, BUF_UNLIMITED);
    buf_printf(&line,
               "{\"id\":\"" ID "00000010\",\"custom_id\":\"a\",\"response\":{\"status_code\":%d,"
               "\"request_id\":\"r\",\"body\":%s},\"error\":null}",
               status, body);
    assert_true(walk(buf_str(&line), said));
    buf_release(&line);
}

/* Checks the fields of a result line with this body. */
static void expect_body(const char *body, const char *wanted) {
    struct buf said;
    buf_init(&said, BUF_UNLIMITED);
    walk_body(body, 200, &said);
    assert_string_equal(said.at, wanted);
    buf_release(&said);
}

static uint64_t labels_of_body(const char *body, int status) {
    struct buf said;
    buf_init(&said, BUF_UNLIMITED);
    walk_body(body, status, &said);
    buf_release(&said);
    return labels;
}

static uint64_t labels_of(const char *text) {
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"choices\":[{\"message\":{\"content\":");
    json_write_string(&body, str_from(text));
    buf_add_text(&body, "}}]}");
    uint64_t found = labels_of_body(body.at, 200);
    buf_release(&body);
    return found;
}

#define CHOICE(content)                                                                            \
    "{\"choices\":[{\"message\":{\"content\":" content "},\"finish_reason\":\"stop\"}]}"
#define START ".custom_id='a' .status=200 "

static void scalars_of_the_answer_are_fields(void **state) {
    (void)state;
    expect_body(CHOICE("\"{\\\"a\\\":1,\\\"b\\\":\\\"x\\\",\\\"c\\\":true,\\\"d\\\":null}\""),
                START ".outcome='stop' .characters=33 a=1 b='x' c=true ");
    expect_body(CHOICE("\"```json\\n{\\\"a\\\":{\\\"b\\\":{\\\"c\\\":[1,2]}}}\\n```\""),
                START ".outcome='stop' .characters=35 a.b.c.length=2 ");
    expect_body(CHOICE("\"{\\\".status\\\":1,\\\"\\\":2,\\\"..a\\\":3}\""),
                START ".outcome='stop' .characters=26 ..status=1 .=2 ...a=3 ");
    expect_body(CHOICE("\"text\""), START ".outcome='stop' .characters=4 ");
    expect_body(CHOICE("\"[1]\""), START ".outcome='stop' .characters=3 ");
    expect_body(CHOICE("\"\\u00fc\\ud83d\\ude00\""), START ".outcome='stop' .characters=2 ");
    expect_body(CHOICE("null"), START ".outcome='stop' .characters=0 ");
}

static void an_answer_that_is_cut_has_the_fields_before_the_cut(void **state) {
    (void)state;
    expect_body(CHOICE("\"{\\\"a\\\":1,\\\"b\\\":\\\"x\""),
                START ".outcome='stop' .characters=13 a=1 ");
    expect_body(CHOICE("\"{\\\"a\\\":1 \\\"b\\\":2}\""),
                START ".outcome='stop' .characters=13 a=1 ");
    expect_body(CHOICE("\"{\\\"a\\\":1e999,\\\"b\\\":01,\\\"c\\\":2}\""),
                START ".outcome='stop' .characters=24 b=0 ");
}

static void calls_of_tools_and_usage_are_read(void **state) {
    (void)state;
    expect_body(
        "{\"choices\":[{\"message\":{\"content\":null,\"tool_calls\":[{\"function\":"
        "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]},\"finish_reason\":\"tool_calls\"}],"
        "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}",
        START ".outcome='tool_calls' .characters=7 a=1 .prompt_tokens=3 .completion_tokens=4 ");
    expect_body("{\"choices\":[{\"text\":\"x\",\"finish_reason\":\"length\",\"logprobs\":"
                "{\"token_logprobs\":[null,-1,-2]}}]}",
                START ".outcome='length' .characters=1 .entropy=1.5 ");
    expect_body(
        "{\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":null,\"logprobs\":"
        "{\"content\":[{\"token\":\"x\",\"logprob\":-0.5,\"top_logprobs\":[]}]}}]}",
        START ".outcome='ok' .characters=1 .entropy=0.5 ");
    expect_body("{\"data\":[{\"embedding\":[1]}]}", START ".outcome='ok' ");
    expect_body("{\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}",
                START ".prompt_tokens=3 .completion_tokens=4 .outcome='ok' ");
}

static void a_refusal_is_a_text_and_the_lowest_index_is_the_answer(void **state) {
    (void)state;
    expect_body("{\"choices\":[{\"message\":{\"content\":null,\"refusal\":\"I can't.\"},"
                "\"finish_reason\":\"stop\"}]}",
                START ".outcome='stop' .characters=8 ");
    expect_body(
        "{\"choices\":[{\"index\":1,\"text\":\"{\\\"a\\\":1}\",\"finish_reason\":\"length\"},"
        "{\"index\":0,\"text\":\"{\\\"a\\\":2}\",\"finish_reason\":\"stop\"}]}",
        START ".outcome='stop' .characters=7 a=2 ");
}

static void decisions_have_a_field_per_question(void **state) {
    (void)state;
    expect_body(
        "{\"answers\":[{\"name\":\"fit\",\"type\":\"choice\",\"choice\":\"yes\",\"confidence\":1,"
        "\"probabilities\":[{\"value\":\"yes\",\"probability\":1},{\"value\":\"no\","
        "\"probability\":0}],\"label_mass\":0.5},{\"name\":null,\"type\":\"predicate\","
        "\"probability\":0.5,\"label_mass\":1}]}",
        START "fit.choice='yes' fit.confidence=1 fit.label_mass=0.5 2.probability=0.5 "
              "2.label_mass=1 .outcome='ok' .entropy=0.346574 ");
    expect_body("{\"answers\":{\"q\":{\"type\":\"score\",\"score\":2,\"probabilities\":{\"0\":0.5,"
                "\"1\":0.5}}}}",
                START "q.score=2 .outcome='ok' .entropy=0.693147 ");
}

static void errors_are_outcomes(void **state) {
    (void)state;
    expect("{\"id\":\"" ID "0000000a\",\"custom_id\":\"a\",\"response\":null,\"error\":{\"code\":"
           "\"batch_expired\",\"message\":\"m\"}}",
           ".custom_id='a' .outcome='batch_expired' ");
    expect_body("{\"error\":{\"message\":\"m\",\"type\":\"server_error\",\"code\":null}}",
                START ".outcome='server_error' ");
}

static void lines_that_quern_has_not_written_are_refused(void **state) {
    (void)state;
    static const char *const lines[] = {"",
                                        "{}",
                                        "[]",
                                        "x",
                                        "{\"id\":\"" ID "00000000\"}",
                                        "{\"id\":1,\"custom_id\":\"a\"}",
                                        "{\"id\":\"batch_req_0\",\"custom_id\":\"a\"}",
                                        "{\"id\":\"" ID "0000000G\",\"custom_id\":\"a\"}",
                                        "{\"id\":\"" ID "00000000\",\"custom_id\":5}"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct buf said;
        buf_init(&said, BUF_UNLIMITED);
        assert_false(walk(str_from(lines[i]), &said));
        buf_release(&said);
    }
}

/* Appends an answer that is hostile in one way as the content of a chat. */
static void add_hostile(struct buf *content, unsigned way) {
    switch (way) {
    case 0: /* nested without end */
        for (unsigned i = 0; i < 100; i++) buf_add_text(content, "{\\\"a\\\":");
        buf_add_text(content, "1");
        for (unsigned i = 0; i < 100; i++) buf_add_byte(content, '}');
        break;
    case 1: /* as many names as bytes allow */
        buf_add_byte(content, '{');
        for (unsigned i = 0; i < 20000; i++)
            buf_printf(content, "%s\\\"f%u\\\":%u", i ? "," : "", i, i);
        buf_add_byte(content, '}');
        break;
    default: /* a long name, and a long text */
        buf_add_text(content, "{\\\"");
        for (unsigned i = 0; i < 100000; i++) buf_add_byte(content, 'n');
        buf_add_text(content, "\\\":1,\\\"t\\\":\\\"");
        for (unsigned i = 0; i < 1000000; i++) buf_add_byte(content, 't');
        buf_add_text(content, "\\\"}");
    }
}

static void count_field(void *context, struct str name, const struct record_value *value) {
    (void)value;
    assert_true(name.bytes <= RECORD_DEPTH_MAX * (TABLE_NAME_BYTES + 1) + 7);
    ++*(size_t *)context;
}

static void ignore_fixed(void *context, unsigned field, const struct record_value *value) {
    (void)context, (void)field, (void)value;
}

static void hostile_answers_have_few_fields(void **state) {
    (void)state;
    static const size_t most[] = {0, RECORD_FIELDS_MAX, 1};
    for (unsigned way = 0; way < 3; way++) {
        struct buf line;
        size_t fields = 0;
        struct record record;
        struct record_walk walk = {&fields, ignore_fixed, count_field, NULL};
        buf_init(&line, BUF_UNLIMITED);
        buf_add_text(&line, "{\"id\":\"" ID "00000000\",\"custom_id\":\"a\",\"response\":"
                            "{\"status_code\":200,\"body\":{\"choices\":[{\"text\":\"");
        add_hostile(&line, way);
        buf_add_text(&line, "\"}]}},\"error\":null}");
        record_init(&record);
        assert_true(record_read(&record, buf_str(&line)));
        record_each(&record, &walk);
        assert_int_equal(fields, most[way]);
        record_release(&record);
        buf_release(&line);
    }
}

static void any_cut_of_a_line_is_read_or_refused(void **state) {
    (void)state;
    const char *line =
        "{\"id\":\"" ID "00000001\",\"custom_id\":\"a\\u00fc\",\"response\":"
        "{\"status_code\":200,\"body\":{\"choices\":[{\"message\":{\"content\":"
        "\"```\\n{\\\"a\\\":{\\\"b\\\":[1,\\\"x\\\"]},\\\"c\\\":\\\"\\\\u00e4\\\"}\"},\"logprobs\":"
        "{\"content\":[{\"logprob\":-1}]}}],\"usage\":{\"prompt_tokens\":1}}},\"error\":null}";
    for (size_t bytes = 0; bytes <= strlen(line); bytes++) {
        struct buf said;
        char *copy = malloc(bytes + 1); /* exact size: a sanitizer sees a read behind the end */
        assert_non_null(copy);
        memcpy(copy, line, bytes);
        buf_init(&said, BUF_UNLIMITED);
        walk((struct str){copy, bytes}, &said);
        buf_release(&said);
        free(copy);
    }
}

static void labels_are_equal_where_runs_agree(void **state) {
    (void)state;
    char longer[2][100];
    for (size_t i = 0; i < 2; i++)
        snprintf(longer[i], sizeof longer[i], "{\"a\":1,\"why\":\"%065d\"}", (int)i);
    assert_int_equal(labels_of("{\"a\":1,\"b\":{\"c\":\"x\"}}"),
                     labels_of("{ \"b\":{\"c\":\"x\"}, \"a\":1.0 }"));
    assert_int_equal(labels_of("{\"a\":-0.0}"), labels_of("```json\n{\"a\":0}\n```"));
    assert_int_equal(labels_of("{\"a\":[{\"b\":1,\"c\":2}]}"),
                     labels_of("{\"a\": [ {\"c\":2, \"b\":1e0} ]}"));
    assert_int_equal(labels_of(longer[0]), labels_of(longer[1]));
    assert_int_equal(labels_of(" a text"), labels_of("a text\n"));
    static const char *const different[] = {"{\"a\":1}",
                                            "{\"a\":2}",
                                            "{\"b\":1}",
                                            "{\"a\":\"1\"}",
                                            "{\"a\":true}",
                                            "{\"a\":[1,2]}",
                                            "{\"a\":[2,1]}",
                                            "{\"a\":[[1],2]}",
                                            "{\"a\":{\"b\":1}}",
                                            "{\"a\":1,\"b\":1}",
                                            "{\"a\":1,\"b\":1",
                                            "{}",
                                            "[]",
                                            "",
                                            "a text",
                                            "another",
                                            "{\"a\":{\"b\":[1]}}",
                                            "{\"a\":[{\"b\":1}]}",
                                            "{\"a\":{\"b\":{\"c\":{\"d\":{\"e\":1}}}}}",
                                            "{\"a\":{\"b\":{\"c\":{\"d\":{\"e\":2}}}}}"};
    const size_t count = sizeof different / sizeof *different;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(labels_of(different[i]), labels_of(different[k]));
}

static void labels_of_a_decision_are_its_answers(void **state) {
    (void)state;
    static const char *const groups[][2] = {
        {"{\"answers\":[{\"name\":\"p\",\"probability\":0.9}]}",
         "{\"answers\":{\"p\":{\"noul\":0.5}}}"},
        {"{\"answers\":[{\"name\":\"p\",\"probability\":0.4}]}",
         "{\"answers\":{\"p\":{\"noul\":0}}}"},
        {"{\"answers\":[{\"name\":\"p\",\"choice\":\"x\",\"probabilities\":[{\"value\":\"x\","
         "\"probability\":0.6}]}]}",
         "{\"answers\":{\"p\":{\"choice\":\"x\",\"probabilities\":{\"x\":0.9}}}}"},
        {"{\"answers\":[{\"name\":\"p\",\"score\":1.2,\"probabilities\":[{\"value\":0,"
         "\"probability\":0.1},{\"value\":2,\"probability\":0.6}]}]}",
         "{\"answers\":{\"p\":{\"score\":2,\"probabilities\":{\"1\":0.2,\"2\":0.8}}}}"},
        {"{\"answers\":[{\"name\":\"p\",\"score\":1.2}]}", "{\"answers\":{\"p\":{\"score\":0.9}}}"},
    };
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        assert_int_equal(labels_of_body(groups[i][0], 200), labels_of_body(groups[i][1], 200));
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(labels_of_body(groups[i][0], 200),
                                 labels_of_body(groups[k][0], 200));
    }
}

static void a_line_without_an_answer_has_no_labels(void **state) {
    (void)state;
    assert_int_equal(labels_of_body("{\"error\":{\"code\":\"bad\"}}", 200), 0);
    assert_int_equal(labels_of_body("{\"choices\":[]}", 200), 0);
    assert_int_equal(labels_of_body(CHOICE("\"text\""), 500), 0);
    assert_int_not_equal(labels_of_body("{\"answers\":[]}", 200), 0);
}

static void entropy_is_of_the_questions_or_of_the_tokens(void **state) {
    (void)state;
    expect_body("{\"answers\":[{\"probability\":0.5}]}",
                START "1.probability=0.5 .outcome='ok' .entropy=0.693147 ");
    expect_body("{\"answers\":[{\"probability\":1},{\"choice\":\"a\",\"probabilities\":"
                "[{\"value\":\"a\",\"probability\":0.5},{\"value\":\"b\",\"probability\":0.5}]}]}",
                START "1.probability=1 2.choice='a' .outcome='ok' .entropy=0.346574 ");
    expect_body("{\"answers\":{\"x\":{\"noul\":0}}}", START "x.noul=0 .outcome='ok' .entropy=0 ");
    expect_body("{\"answers\":[{\"choice\":\"a\"}]}", START "1.choice='a' .outcome='ok' ");
    expect_body("{\"choices\":[{\"text\":\"x\",\"logprobs\":{\"token_logprobs\":[0.5]}}]}",
                START ".outcome='ok' .characters=1 .entropy=0 ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_equal_where_runs_agree),
        cmocka_unit_test(labels_of_a_decision_are_its_answers),
        cmocka_unit_test(a_line_without_an_answer_has_no_labels),
        cmocka_unit_test(entropy_is_of_the_questions_or_of_the_tokens),
        cmocka_unit_test(scalars_of_the_answer_are_fields),
        cmocka_unit_test(an_answer_that_is_cut_has_the_fields_before_the_cut),
        cmocka_unit_test(calls_of_tools_and_usage_are_read),
        cmocka_unit_test(a_refusal_is_a_text_and_the_lowest_index_is_the_answer),
        cmocka_unit_test(decisions_have_a_field_per_question),
        cmocka_unit_test(errors_are_outcomes),
        cmocka_unit_test(lines_that_quern_has_not_written_are_refused),
        cmocka_unit_test(hostile_answers_have_few_fields),
        cmocka_unit_test(any_cut_of_a_line_is_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
