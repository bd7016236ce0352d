/* SPDX-License-Identifier: Apache-2.0 */
#include "decisions/question.h"
#include "reading.h"

#include <string.h>

static struct refusal refused(const char *text) {
    struct questions questions;
    struct refusal refusal = {.status = 0};
    json_t *body = read_value(text);
    if (questions_read(&questions, body, &refusal)) fail_msg("taken: %s", text);
    json_decref(body);
    assert_int_equal(refusal.status, 400);
    return refusal;
}

static void questions_keep_order_names_and_types(void **state) {
    (void)state;
    struct questions questions;
    struct refusal refusal;
    json_t *body = read_value(
        "{\"questions\":[{\"type\":\"score\",\"name\":\"fit\",\"instructions\":\"a\",\"levels\":["
        "{\"label\":\"x\"},{\"label\":\"x\"}]},{\"type\":\"predicate\",\"name\":null,"
        "\"instructions\":\"b\"},{\"type\":\"choice\",\"instructions\":\"c\",\"choices\":["
        "{\"value\":true},{\"value\":\"true\"},{\"value\":false}]}]}");
    assert_true(questions_read(&questions, body, &refusal));
    assert_int_equal(questions.count, 3);
    assert_int_equal(questions.at[0].type, QUESTION_SCORE);
    assert_string_equal(json_string_value(questions.at[0].name), "fit");
    assert_int_equal(questions.at[0].option_count, 2); /* levels may have equal labels */
    assert_int_equal(questions.at[1].type, QUESTION_PREDICATE);
    assert_null(questions.at[1].name);
    assert_int_equal(questions.at[1].option_count, 2);
    assert_int_equal(questions.at[2].option_count, 3); /* true and "true" differ */
    assert_string_equal(questions.at[2].instructions.at, "c");
    questions_release(&questions);
    json_decref(body);
}

#define ONE(members) "{\"questions\":[{" members "}]}"
#define ASKS "\"instructions\":\"x\""

static void a_refusal_names_field_value_and_path(void **state) {
    (void)state;
    static const struct {
        const char *body, *code, *param, *words;
    } rows[] = {
        {"{}", "missing_required_parameter", "questions", "questions"},
        {"{\"questions\":{}}", "invalid_type", "questions", "an object"},
        {"{\"questions\":[]}", "array_below_min_length", "questions", "at least 1"},
        {"{\"questions\":[1]}", "invalid_type", "questions[0]", "an object"},
        {ONE(ASKS), "missing_required_parameter", "questions[0].type", "type"},
        {ONE("\"type\":\"yes_no\"," ASKS), "invalid_value", "questions[0].type",
         "'yes_no'. Supported values are: 'predicate', 'choice', 'score'"},
        {ONE("\"type\":\"predicate\""), "missing_required_parameter", "questions[0].instructions",
         ""},
        {ONE("\"type\":\"predicate\",\"instructions\":7"), "invalid_type",
         "questions[0].instructions", "7"},
        {ONE("\"type\":\"predicate\",\"instructions\":[]"), "array_below_min_length",
         "questions[0].instructions", ""},
        {ONE("\"type\":\"predicate\",\"name\":3," ASKS), "invalid_type", "questions[0].name", "3"},
        {ONE("\"type\":\"predicate\",\"instructions\":[{\"type\":\"input_image\"}]"),
         "unsupported_parameter", "questions[0].instructions[0].type", "text only"},
        {ONE("\"type\":\"predicate\",\"instructions\":[{\"type\":\"text\",\"text\":\"x\"}]"),
         "invalid_value", "questions[0].instructions[0].type", "'input_text', 'input_json'"},
        {ONE("\"type\":\"choice\"," ASKS), "missing_required_parameter", "questions[0].choices",
         ""},
        {ONE("\"type\":\"choice\"," ASKS ",\"choices\":[{\"value\":\"a\"}]"),
         "array_below_min_length", "questions[0].choices", "at least 2 elements, but got 1"},
        {ONE("\"type\":\"choice\"," ASKS ",\"choices\":[{\"value\":\"a\"},{\"value\":1}]"),
         "invalid_type", "questions[0].choices[1].value", "a string or a boolean"},
        {ONE("\"type\":\"choice\"," ASKS ",\"choices\":[{\"value\":\"a\"},{\"value\":\"a\"}]"),
         "invalid_value", "questions[0].choices[1].value", "'a' is the value of choice 0"},
        {ONE("\"type\":\"choice\"," ASKS ",\"choices\":[{\"value\":true},{\"value\":true}]"),
         "invalid_value", "questions[0].choices[1].value", "true"},
        {ONE("\"type\":\"choice\"," ASKS
             ",\"choices\":[{\"value\":\"a\",\"description\":1},{\"value\":\"b\"}]"),
         "invalid_type", "questions[0].choices[0].description", "1"},
        {ONE("\"type\":\"score\"," ASKS ",\"levels\":[{\"label\":\"a\"},{\"label\":true}]"),
         "invalid_type", "questions[0].levels[1].label", "a string, but got a boolean"},
        {ONE("\"type\":\"score\"," ASKS ",\"levels\":[{\"label\":\"a\"},{}]"),
         "missing_required_parameter", "questions[0].levels[1].label", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct refusal refusal = refused(rows[i].body);
        assert_string_equal(refusal.code, rows[i].code);
        assert_string_equal(refusal.param, rows[i].param);
        if (!strstr(refusal.message, rows[i].words)) fail_msg("%s", refusal.message);
        if (!strstr(refusal.message, rows[i].param)) fail_msg("%s", refusal.message);
    }
}

/* A body with so many choices, or so many predicates. */
static struct buf many(uint32_t choices, uint32_t predicates) {
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_add_text(&text, "{\"questions\":[");
    for (uint32_t i = 0; i < predicates; i++)
        buf_printf(&text, "%s{\"type\":\"predicate\",\"instructions\":\"%u\"}", i ? "," : "", i);
    if (choices > 0)
        buf_add_text(&text, "{\"type\":\"choice\",\"instructions\":\"\",\"choices\":[");
    for (uint32_t i = 0; i < choices; i++)
        buf_printf(&text, "%s{\"value\":\"%u\"}", i ? "," : "", i);
    buf_add_text(&text, choices > 0 ? "]}]}" : "]}");
    return text;
}

static void counts_have_bounds(void **state) {
    (void)state;
    static const struct {
        uint32_t choices, predicates;
        const char *param; /* NULL: it is taken */
    } rows[] = {
        {255, 0, NULL}, {256, 0, "questions[0].choices"}, {0, 400, NULL}, {0, 401, "questions"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf text = many(rows[i].choices, rows[i].predicates);
        if (rows[i].param) {
            struct refusal refusal = refused(text.at);
            assert_string_equal(refusal.code, "array_above_max_length");
            assert_string_equal(refusal.param, rows[i].param);
        } else {
            struct questions questions;
            struct refusal refusal;
            json_t *body = read_value(text.at);
            assert_true(questions_read(&questions, body, &refusal));
            assert_int_equal(questions.count, rows[i].predicates ? rows[i].predicates : 1);
            questions_release(&questions);
            json_decref(body);
        }
        buf_release(&text);
    }
}

/* An instruction of JSON with so many arrays inside each other, in an object. */
static struct buf deep(uint32_t depth) {
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_add_text(&text, "{\"questions\":[{\"type\":\"predicate\",\"instructions\":["
                        "{\"type\":\"input_json\",\"data\":{\"a\":");
    for (uint32_t i = 1; i < depth; i++) buf_add_byte(&text, '[');
    for (uint32_t i = 1; i < depth; i++) buf_add_byte(&text, ']');
    if (depth <= 1) buf_add_byte(&text, '1');
    buf_add_text(&text, "}}]}]}");
    return text;
}

static void json_has_a_depth(void **state) {
    (void)state;
    struct questions questions;
    struct refusal refusal;
    struct buf good = deep(32), bad = deep(33);
    json_t *body = read_value(good.at);
    assert_true(questions_read(&questions, body, &refusal));
    questions_release(&questions);
    json_decref(body);
    refusal = refused(bad.at);
    assert_string_equal(refusal.param, "questions[0].instructions[0].data");
    assert_non_null(strstr(refusal.message, "32 levels"));
    buf_release(&good);
    buf_release(&bad);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_keep_order_names_and_types),
        cmocka_unit_test(a_refusal_names_field_value_and_path),
        cmocka_unit_test(counts_have_bounds),
        cmocka_unit_test(json_has_a_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
