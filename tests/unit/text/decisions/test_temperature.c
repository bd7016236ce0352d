/* SPDX-License-Identifier: Apache-2.0 */
/* Which temperature a question has, what it does to its shares, and which are refused. */
#include "decisions/answer.h"
#include "decisions/systemone.h"
#include "decisions/temperature.h"
#include "reading.h"

#include <math.h>
#include <string.h>

#define THREE                                                                                      \
    "\"questions\":[{\"type\":\"predicate\",\"name\":\"a\",\"instructions\":\"x\"},"               \
    "{\"type\":\"predicate\",\"instructions\":\"y\"},"                                             \
    "{\"type\":\"predicate\",\"name\":\"\",\"instructions\":\"z\"}]"

static void check(const char *members, double a, double second, double empty) {
    struct questions questions;
    struct refusal refusal;
    char text[1024];
    snprintf(text, sizeof text, "{" THREE "%s}", members);
    json_t *body = read_value(text);
    assert_true(questions_read(&questions, body, &refusal));
    if (!temperatures_read(&questions, body, &refusal)) fail_msg("%s", refusal.message);
    assert_true(questions.at[0].temperature == a);
    assert_true(questions.at[1].temperature == second);
    assert_true(questions.at[2].temperature == empty);
    questions_release(&questions);
    json_decref(body);
}

static void a_named_temperature_overrides_that_of_all(void **state) {
    (void)state;
    check("", 1, 1, 1);
    check(",\"temperature\":null,\"temperatures\":null", 1, 1, 1);
    check(",\"temperature\":2", 2, 2, 2);
    check(",\"temperatures\":{\"a\":0.5,\"unknown\":3}", 0.5, 1, 1);
    check(",\"temperature\":2,\"temperatures\":{\"1\":0.25}", 2, 0.25, 2);
    check(",\"temperatures\":{\"1\":0.01,\"a\":100,\"\":7}", 100, 0.01, 7);
}

static void ids_name_the_questions_of_systemone(void **state) {
    (void)state;
    struct questions questions;
    struct refusal refusal;
    json_t *body =
        read_value("{\"questions\":{\"p\":{\"type\":\"noul\"},\"q\":{\"type\":\"noul\"}},"
                   "\"temperatures\":{\"q\":3,\"0\":9}}");
    assert_true(systemone_questions_read(&questions, body, &refusal));
    assert_true(temperatures_read(&questions, body, &refusal));
    assert_true(questions.at[0].temperature == 1 && questions.at[1].temperature == 3);
    questions_release(&questions);
    json_decref(body);
}

static void what_is_no_temperature_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *members, *code, *param;
    } rows[] = {
        {",\"temperature\":0", "invalid_value", "temperature"},
        {",\"temperature\":-1", "invalid_value", "temperature"},
        {",\"temperature\":100.5", "invalid_value", "temperature"},
        {",\"temperature\":\"1\"", "invalid_type", "temperature"},
        {",\"temperatures\":[1]", "invalid_type", "temperatures"},
        {",\"temperatures\":{\"a\":null}", "invalid_type", "temperatures.a"},
        {",\"temperatures\":{\"nobody\":0}", "invalid_value", "temperatures.nobody"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct questions questions;
        struct refusal refusal;
        char text[1024];
        snprintf(text, sizeof text, "{" THREE "%s}", rows[i].members);
        json_t *body = read_value(text);
        assert_true(questions_read(&questions, body, &refusal));
        if (temperatures_read(&questions, body, &refusal)) fail_msg("%s", text);
        assert_string_equal(refusal.code, rows[i].code);
        assert_string_equal(refusal.param, rows[i].param);
        questions_release(&questions);
        json_decref(body);
    }
}

static void a_temperature_flattens_shares_and_keeps_order_and_mass(void **state) {
    (void)state;
    static const double logprobs[] = {-3, -0.5, -2};
    struct shares plain = shares_of(logprobs, 3, 1), flat = shares_of(logprobs, 3, 2),
                  sharp = shares_of(logprobs, 3, 0.01);
    assert_true(plain.top == 1 && flat.top == 1 && sharp.top == 1);
    assert_true(plain.label_mass == flat.label_mass && plain.label_mass == sharp.label_mass);
    assert_true(sharp.at[1] > plain.at[1] && plain.at[1] > flat.at[1]);
    /* Ratios of shares are those of the probabilities, to the power of 1/T. */
    assert_true(fabs(flat.at[1] / flat.at[2] - exp(1.5 / 2)) < 1e-12);
    assert_true(fabs(plain.at[1] / plain.at[2] - exp(1.5)) < 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_named_temperature_overrides_that_of_all),
        cmocka_unit_test(ids_name_the_questions_of_systemone),
        cmocka_unit_test(what_is_no_temperature_is_refused),
        cmocka_unit_test(a_temperature_flattens_shares_and_keeps_order_and_mass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
