/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of answers, on the numbers of the contract's example and at the edges. */
#include "decisions/answer.h"
#include "reading.h"

#include <math.h>
#include <string.h>

static void check_near(double got, double expected) {
    if (!(fabs(got - expected) < 5e-7)) fail_msg("%.9f instead of %.9f", got, expected);
}

static void the_example_of_the_contract_comes_out(void **state) {
    (void)state;
    static const double predicate[] = {-2.51, -0.11}, choice[] = {-1.90, -0.22, -4.10, -3.60},
                        score[] = {-3.2, -0.9, -0.75};
    struct shares shares = shares_of(predicate, 2, 1);
    check_near(shares.at[1], 0.916827);
    check_near(shares.label_mass, 0.977102);
    shares = shares_of(choice, 4, 1);
    static const double of_choice[] = {0.150172, 0.805755, 0.016640, 0.027434};
    for (int i = 0; i < 4; i++) check_near(shares.at[i], of_choice[i]);
    assert_int_equal(shares.top, 1);
    check_near(shares.label_mass, 0.995984);
    check_near(shares_choice_confidence(&shares), 0.741006);
    shares = shares_of(score, 3, 1);
    static const double of_score[] = {0.044321, 0.442068, 0.513610};
    for (int i = 0; i < 3; i++) check_near(shares.at[i], of_score[i]);
    check_near(shares.label_mass, 0.919698);
    check_near(shares_score(&shares), 1.469289);
    check_near(shares_score_confidence(&shares), 0.203933);
}

static void the_first_of_equal_options_wins(void **state) {
    (void)state;
    static const double equal[] = {-3, -2, -2, -9};
    struct shares shares = shares_of(equal, 4, 1);
    assert_int_equal(shares.top, 1);
    assert_true(shares.at[1] == shares.at[2]);
}

static void confidence_is_0_for_equal_shares_and_1_for_one(void **state) {
    (void)state;
    static const double equal[] = {-1, -1, -1}, one[] = {-9999, 0, -9999}, edge[] = {0, -9999, 0};
    struct shares shares = shares_of(equal, 3, 1);
    check_near(shares_choice_confidence(&shares), 0);
    assert_true(shares_score_confidence(&shares) >= 0);
    shares = shares_of(one, 3, 1);
    assert_true(shares_choice_confidence(&shares) == 1);
    assert_true(shares_score_confidence(&shares) == 1);
    assert_true(shares_score(&shares) == 1);
    shares = shares_of(edge, 3, 1); /* far from its first top, below 0 without the bound */
    assert_true(shares_score_confidence(&shares) == 0);
    assert_true(shares.label_mass == 1); /* the two would be 2 */
}

static void shares_stay_in_range_and_sum_to_1(void **state) {
    (void)state;
    double logprobs[QUESTION_OPTIONS_MAX];
    uint64_t seed = 7;
    for (int round = 0; round < 1000; round++) {
        uint32_t count = 2 + (uint32_t)round % (QUESTION_OPTIONS_MAX - 1);
        double sum = 0;
        for (uint32_t i = 0; i < count; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            logprobs[i] = -(double)(seed >> 40) / (1 << 19);
        }
        struct shares shares = shares_of(logprobs, count, 1);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(shares.at[i] >= 0 && shares.at[i] <= 1);
            sum += shares.at[i];
        }
        assert_true(fabs(sum - 1) < 1e-12);
        double confidence = shares_choice_confidence(&shares);
        assert_true(confidence >= 0 && confidence <= 1);
        confidence = shares_score_confidence(&shares);
        assert_true(confidence >= 0 && confidence <= 1);
    }
}

/* The answer to the only question of a body, as JSON. */
static json_t *answer(const char *text, const double *logprobs) {
    struct questions questions;
    struct refusal refusal;
    struct buf out;
    json_t *body = read_value(text);
    if (!questions_read(&questions, body, &refusal)) fail_msg("%s", refusal.message);
    struct shares shares = shares_of(logprobs, questions.at[0].option_count, 1);
    buf_init(&out, 1 << 20);
    answer_write_question(&out, &questions.at[0], &shares);
    for (size_t i = 0; i < out.bytes; i++) assert_true((unsigned char)out.at[i] < 0x80);
    json_t *written = read_value(out.at);
    buf_release(&out);
    questions_release(&questions);
    json_decref(body);
    return written;
}

static void check_keys(json_t *object, const char *const *keys) {
    size_t count = 0;
    for (; keys[count]; count++)
        if (!json_object_get(object, keys[count])) fail_msg("no %s", keys[count]);
    assert_int_equal(json_object_size(object), count);
}

static void answers_have_the_members_of_the_contract(void **state) {
    (void)state;
    static const double logprobs[] = {-3, -1, -2};
    static const char *const of_predicate[] = {"type", "name", "probability", "label_mass", NULL};
    static const char *const of_choice[] = {"type",          "name",       "choice", "confidence",
                                            "probabilities", "label_mass", NULL};
    static const char *const of_score[] = {"type",          "name",       "score", "confidence",
                                           "probabilities", "label_mass", NULL};
    json_t *written =
        answer("{\"questions\":[{\"type\":\"predicate\",\"instructions\":\"x\"}]}", logprobs);
    check_keys(written, of_predicate);
    assert_true(json_is_null(json_object_get(written, "name"))); /* there, and null */
    json_decref(written);
    written = answer("{\"questions\":[{\"type\":\"choice\",\"name\":\"n\xC3\xA9\",\"instructions\":"
                     "\"x\",\"choices\":[{\"value\":\"true\"},{\"value\":true},{\"value\":\"c\"}]}"
                     "]}",
                     logprobs);
    check_keys(written, of_choice);
    assert_true(json_is_true(json_object_get(written, "choice")));
    json_t *all = json_object_get(written, "probabilities");
    assert_int_equal(json_array_size(all), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(all, 0), "value")),
                        "true");
    json_decref(written);
    written = answer("{\"questions\":[{\"type\":\"score\",\"instructions\":\"x\",\"levels\":["
                     "{\"label\":\"l\"},{\"label\":\"m\"},{\"label\":\"h\"}]}]}",
                     logprobs);
    check_keys(written, of_score);
    all = json_object_get(written, "probabilities");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(all, 2), "value")), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(all, 2), "label")), "h");
    json_decref(written);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_the_contract_comes_out),
        cmocka_unit_test(the_first_of_equal_options_wins),
        cmocka_unit_test(confidence_is_0_for_equal_shares_and_1_for_one),
        cmocka_unit_test(shares_stay_in_range_and_sum_to_1),
        cmocka_unit_test(answers_have_the_members_of_the_contract),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
