/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sampling.h"

#include <math.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define VOCAB 100u

static void zeros_are_a_valid_greedy_sampling(void **state) {
    (void)state;
    struct sampling sampling = {0};
    assert_int_equal(sampling_check(&sampling, VOCAB, NULL), OK);
}

static void a_number_outside_its_range_is_refused_by_name(void **state) {
    (void)state;
    const struct {
        struct sampling sampling;
        const char *text;
    } cases[] = {
        {{.temperature = -0.5f}, "temperature: -0.5 is outside 0..100"},
        {{.temperature = NAN}, "temperature: nan is outside 0..100"},
        {{.temperature = INFINITY}, "temperature: inf is outside 0..100"},
        {{.top_p = 1.5f}, "top_p: 1.5 is outside 0..1"},
        {{.min_p = -1}, "min_p: -1 is outside 0..1"},
        {{.presence_penalty = 3}, "presence_penalty: 3 is outside -2..2"},
        {{.frequency_penalty = -3}, "frequency_penalty: -3 is outside -2..2"},
        {{.repetition_penalty = -1}, "repetition_penalty: -1 is outside 0..100"},
        {{.logprobs = true, .top_logprobs = 21}, "top_logprobs: 21 is outside 0..20"},
        {{.top_logprobs = 2}, "top_logprobs: 2 needs logprobs to be true"},
        {{.max_tokens = 3, .min_tokens = 4}, "min_tokens: 4 is more than max_tokens 3"},
        {{.bias_count = 2000}, "logit_bias: 2000 entries are more than 1024"},
        {{.stop_token_count = 300}, "stop_token_ids: 300 tokens are more than 256"},
        {{.allowed_token_count = 20000}, "allowed_token_ids: 20000 tokens are more than 16384"},
        {{.logprob_token_count = 3}, "logprob_token_ids: 3 need logprobs to be true"},
        {{.logprobs = true, .logprob_token_count = 129},
         "logprob_token_ids: 129 tokens are more than 128"},
        {{.prompt_top_logprobs = 1}, "prompt_logprobs: 1 is outside 0..20"},
        {{.prompt_logprobs = true, .prompt_top_logprobs = 21},
         "prompt_logprobs: 21 is outside 0..20"},
        {{.bad_word_ints = 20000}, "bad_words: 20000 numbers are more than 16384"},
        {{.bad_words = (const int32_t[]){0}, .bad_word_ints = 1}, "bad_words: a run of 0 tokens"},
        {{.bad_words = (const int32_t[]){2, 5}, .bad_word_ints = 2},
         "bad_words: a run of 2 tokens"},
        {{.bad_words = (const int32_t[]){1, 5, 1, 100}, .bad_word_ints = 4},
         "bad_words[0]: token 100 is outside 0..99"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error error = {0};
        assert_int_equal(sampling_check(&cases[i].sampling, VOCAB, &error), ERR_INVALID);
        assert_string_equal(error.text, cases[i].text);
    }
}

static void a_token_outside_the_vocabulary_is_refused(void **state) {
    (void)state;
    const int32_t tokens[] = {99, 100};
    const int32_t negative[] = {-1};
    const struct logit_bias biases[] = {{99, 100}, {5, -101}};
    struct error error = {0};
    struct sampling sampling = {.stop_tokens = tokens, .stop_token_count = 1};
    assert_int_equal(sampling_check(&sampling, VOCAB, &error), OK);
    sampling.stop_token_count = 2;
    assert_int_equal(sampling_check(&sampling, VOCAB, &error), ERR_INVALID);
    assert_string_equal(error.text, "stop_token_ids[1]: token 100 is outside 0..99");
    sampling = (struct sampling){.end_tokens = negative, .end_token_count = 1};
    assert_int_equal(sampling_check(&sampling, VOCAB, &error), ERR_INVALID);
    sampling = (struct sampling){.biases = biases, .bias_count = 1};
    assert_int_equal(sampling_check(&sampling, VOCAB, &error), OK);
    sampling.bias_count = 2;
    assert_int_equal(sampling_check(&sampling, VOCAB, &error), ERR_INVALID);
    assert_string_equal(error.text, "logit_bias: -101 is outside -100..100");
}

static void stop_and_end_tokens_stop_only_after_min_tokens(void **state) {
    (void)state;
    const int32_t stop[] = {7};
    const int32_t end[] = {8, 9};
    struct sampling sampling = {.min_tokens = 2,
                                .stop_tokens = stop,
                                .stop_token_count = 1,
                                .end_tokens = end,
                                .end_token_count = 2};
    assert_false(sampling_is_stop(&sampling, 7, 2));
    assert_true(sampling_is_stop(&sampling, 7, 3));
    assert_true(sampling_is_stop(&sampling, 9, 3));
    assert_false(sampling_is_stop(&sampling, 6, 3));
}

static void ignore_eos_is_about_end_tokens_only(void **state) {
    (void)state;
    const int32_t stop[] = {7};
    const int32_t end[] = {8};
    struct sampling sampling = {.stop_tokens = stop,
                                .stop_token_count = 1,
                                .end_tokens = end,
                                .end_token_count = 1,
                                .ignore_eos = true};
    assert_true(sampling_is_stop(&sampling, 7, 1));
    assert_false(sampling_is_stop(&sampling, 8, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeros_are_a_valid_greedy_sampling),
        cmocka_unit_test(a_number_outside_its_range_is_refused_by_name),
        cmocka_unit_test(a_token_outside_the_vocabulary_is_refused),
        cmocka_unit_test(stop_and_end_tokens_stop_only_after_min_tokens),
        cmocka_unit_test(ignore_eos_is_about_end_tokens_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
