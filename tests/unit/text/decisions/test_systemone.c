/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of /v1/systemone: what is read, the words of its prompts byte for byte, its answers, and
 * what is refused. */
#include "decisions/answer.h"
#include "decisions/systemone.h"
#include "decisions/wording.h"
#include "reading.h"

#include <math.h>
#include <string.h>

static struct buf written; /* text of the test that runs */

static int release(void **state) {
    (void)state;
    buf_release(&written);
    return 0;
}

static void open_written(void) {
    buf_release(&written);
    buf_init(&written, 1 << 20);
}

/* The block of the only question. */
static const char *block(const char *question) {
    struct label_text labels[WORDING_LETTERS];
    struct questions questions;
    struct refusal refusal;
    open_written();
    buf_printf(&written, "{\"questions\":{\"q\":%s}}", question);
    json_t *body = read_value(written.at);
    if (!systemone_questions_read(&questions, body, &refusal)) fail_msg("%s", refusal.message);
    enum label_set set = questions.at[0].labels;
    for (uint32_t i = 0; i < questions.at[0].option_count; i++)
        labels[i] = set == LABELS_WORDS    ? label_word(i)
                    : set == LABELS_DIGITS ? label_digit(i)
                                           : label_letter(i);
    open_written();
    wording_write_question(&written, &questions.at[0], labels);
    questions_release(&questions);
    json_decref(body);
    return written.at;
}

static void each_type_has_its_labels_and_last_line(void **state) {
    (void)state;
    assert_string_equal(block("{\"type\":\"noul\",\"instructions\":\"Works remotely?\"}"),
                        "Question: Works remotely?\nyes\nno\nAnswer with yes or no only.");
    assert_string_equal(
        block("{\"type\":\"noul\",\"criteria\":{\"true\":\"some days\",\"false\":null}}"),
        "yes: some days\nno\nAnswer with yes or no only.");
    assert_string_equal(
        block(
            "{\"type\":\"choice\",\"instructions\":\"w?\",\"criteria\":{\"ops\":\"keeps \xC3\xA9\","
            "\"say \\\"x\\\"\":null,\"true\":\"\"}}"),
        "Question: w?\nA: ops - keeps \xC3\xA9\nB: say \"x\"\nC: true\n"
        "Answer with the letter of one option only.");
    assert_string_equal(
        block("{\"type\":\"score\",\"instructions\":\"s?\",\"criteria\":[\"lo: low one\",\"hi\"]}"),
        "Question: s?\n0: lo: low one\n1: hi\nAnswer with the number of one level only.");
    /* The tenth level is the last with a digit. */
    assert_string_equal(
        block("{\"type\":\"score\",\"criteria\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\","
              "\"g\",\"h\",\"i\",\"j\",\"k\"]}"),
        "A: a\nB: b\nC: c\nD: d\nE: e\nF: f\nG: g\nH: h\nI: i\nJ: j\nK: k\n"
        "Answer with the letter of one option only.");
}

static void check_state(const char *text, const char *state_text, const char *system) {
    struct decision_input input;
    struct refusal refusal;
    json_t *body = read_value(text);
    if (!systemone_input_read(&input, body, &refusal)) fail_msg("%s", refusal.message);
    assert_string_equal(input.state.at, state_text);
    assert_int_equal(input.has_system, system != NULL);
    if (system) assert_string_equal(input.system.at, system);
    decision_input_release(&input);
    json_decref(body);
}

static void a_state_of_json_has_spaces(void **state) {
    (void)state;
    check_state("{\"state\":\"a text\"}", "a text", NULL);
    check_state("{\"state\":{\"b\":[1,2.5,null],\"a\":{\"\xC3\xA9\":true},\"o\":{},\"l\":[]},"
                "\"instructions\":\"be strict\"}",
                "{\"b\": [1, 2.5, null], \"a\": {\"\xC3\xA9\": true}, \"o\": {}, \"l\": []}",
                "be strict");
    check_state("{\"state\":[\"x\",1],\"instructions\":null}", "[\"x\", 1]", NULL);
}

/* The answers to the questions of a body, as one JSON object. */
static json_t *answers(const char *text, const double *logprobs) {
    struct questions questions;
    struct refusal refusal;
    json_t *body = read_value(text);
    if (!systemone_questions_read(&questions, body, &refusal)) fail_msg("%s", refusal.message);
    open_written();
    for (uint32_t i = 0; i < questions.count; i++) {
        struct shares shares = shares_of(logprobs, questions.at[i].option_count, 1);
        buf_printf(&written, "%s\"%.*s\":", i ? "," : "{", STR_ARGS(questions.at[i].id));
        answer_write_systemone(&written, &questions.at[i], &shares);
    }
    buf_add_byte(&written, '}');
    questions_release(&questions);
    json_decref(body);
    return read_value(written.at);
}

static double number_at(const json_t *object, const char *a, const char *b, const char *c) {
    const json_t *at = json_object_get(json_object_get(object, a), b);
    return json_number_value(c ? json_object_get(at, c) : at);
}

static void answers_are_those_of_the_contract(void **state) {
    (void)state;
    static const double logprobs[] = {-1.90, -0.22, -4.10, -3.60};
    json_t *all = answers(
        "{\"questions\":{\"remote\":{\"type\":\"noul\"},\"team\":{\"type\":\"choice\",\"criteria\":"
        "{\"ops\":null,\"data\":null,\"hr\":null,\"none\":null}},\"fit\":{\"type\":\"score\","
        "\"criteria\":[\"weak\",\"fair\",\"strong\"]},\"one\":{\"type\":\"choice\",\"criteria\":"
        "{\"only\":null}}}}",
        logprobs);
    assert_string_equal(json_string_value(json_object_get(json_object_get(all, "remote"), "type")),
                        "noul");
    assert_true(fabs(number_at(all, "remote", "noul", NULL) - 0.842911) < 1e-5);
    assert_int_equal(json_object_size(json_object_get(all, "remote")), 3);
    assert_string_equal(json_string_value(json_object_get(json_object_get(all, "team"), "choice")),
                        "data");
    assert_true(fabs(number_at(all, "team", "probabilities", "data") - 0.805755) < 1e-6);
    assert_true(fabs(number_at(all, "team", "confidence", NULL) - 0.741006) < 1e-6);
    const json_t *legend = json_object_get(json_object_get(all, "fit"), "legend");
    assert_string_equal(json_string_value(json_object_get(legend, "2")), "strong");
    assert_true(number_at(all, "fit", "probabilities", "1") > 0.8);
    assert_true(number_at(all, "one", "confidence", NULL) == 1);
    assert_true(number_at(all, "one", "probabilities", "only") == 1);
    json_decref(all);
}

static void a_refusal_names_the_question(void **state) {
    (void)state;
    static const struct {
        const char *body, *code, *param;
    } rows[] = {
        {"{}", "missing_required_parameter", "questions"},
        {"{\"questions\":[]}", "invalid_type", "questions"},
        {"{\"questions\":{}}", "array_below_min_length", "questions"},
        {"{\"questions\":{\"q\":1}}", "invalid_type", "questions.q"},
        {"{\"questions\":{\"q\":{}}}", "missing_required_parameter", "questions.q.type"},
        {"{\"questions\":{\"q\":{\"type\":\"predicate\"}}}", "invalid_value", "questions.q.type"},
        {"{\"questions\":{\"q\":{\"type\":\"noul\",\"instructions\":1}}}", "invalid_type",
         "questions.q.instructions"},
        {"{\"questions\":{\"q\":{\"type\":\"noul\",\"criteria\":[]}}}", "invalid_type",
         "questions.q.criteria"},
        {"{\"questions\":{\"q\":{\"type\":\"noul\",\"criteria\":{\"maybe\":null}}}}",
         "invalid_value", "questions.q.criteria"},
        {"{\"questions\":{\"q\":{\"type\":\"choice\"}}}", "missing_required_parameter",
         "questions.q.criteria"},
        {"{\"questions\":{\"q\":{\"type\":\"choice\",\"criteria\":{}}}}", "array_below_min_length",
         "questions.q.criteria"},
        {"{\"questions\":{\"q\":{\"type\":\"choice\",\"criteria\":{\"a\":2}}}}", "invalid_type",
         "questions.q.criteria.a"},
        {"{\"questions\":{\"q\":{\"type\":\"score\",\"criteria\":[\"a\",null]}}}", "invalid_type",
         "questions.q.criteria[1]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct questions questions;
        struct refusal refusal;
        json_t *body = read_value(rows[i].body);
        if (systemone_questions_read(&questions, body, &refusal)) fail_msg("%s", rows[i].body);
        assert_string_equal(refusal.code, rows[i].code);
        assert_string_equal(refusal.param, rows[i].param);
        json_decref(body);
    }
}

static void a_text_of_another_type_is_refused(void **state) {
    (void)state;
    static const char *const bodies[] = {"{}", "{\"state\":1}",
                                         "{\"state\":\"x\",\"instructions\":[]}"};
    static const char *const params[] = {"state", "state", "instructions"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct decision_input input;
        struct refusal refusal;
        json_t *body = read_value(bodies[i]);
        assert_false(systemone_input_read(&input, body, &refusal));
        assert_string_equal(refusal.param, params[i]);
        json_decref(body);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_type_has_its_labels_and_last_line, release),
        cmocka_unit_test(a_state_of_json_has_spaces),
        cmocka_unit_test_teardown(answers_are_those_of_the_contract, release),
        cmocka_unit_test(a_refusal_names_the_question),
        cmocka_unit_test(a_text_of_another_type_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
