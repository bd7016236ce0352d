/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sampling.h"

#include <math.h>
#include <stddef.h>

static enum err check_range(const char *name, float value, float low, float high,
                            struct error *error) {
    /* Written so that NaN fails. */
    if (value >= low && value <= high) return OK;
    return err_set(error, ERR_INVALID, "%s: %g is outside %g..%g", name, (double)value, (double)low,
                   (double)high);
}

static enum err check_tokens(const char *name, const int32_t *tokens, uint32_t count,
                             uint32_t count_max, uint32_t vocab, struct error *error) {
    if (count > count_max)
        return err_set(error, ERR_INVALID, "%s: %u tokens are more than %u", name, count,
                       count_max);
    for (uint32_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= vocab)
            return err_set(error, ERR_INVALID, "%s[%u]: token %d is outside 0..%u", name, i,
                           tokens[i], vocab - 1);
    return OK;
}

static enum err check_biases(const struct sampling *sampling, uint32_t vocab, struct error *error) {
    if (sampling->bias_count > SAMPLING_BIASES_MAX)
        return err_set(error, ERR_INVALID, "logit_bias: %u entries are more than %u",
                       sampling->bias_count, SAMPLING_BIASES_MAX);
    for (uint32_t i = 0; i < sampling->bias_count; i++) {
        struct logit_bias bias = sampling->biases[i];
        if (bias.token < 0 || (uint32_t)bias.token >= vocab)
            return err_set(error, ERR_INVALID, "logit_bias: token %d is outside 0..%u", bias.token,
                           vocab - 1);
        enum err err = check_range("logit_bias", bias.bias, -100, 100, error);
        if (err) return err;
    }
    return OK;
}

static enum err check_bad_words(const struct sampling *sampling, uint32_t vocab,
                                struct error *error) {
    if (sampling->bad_word_ints > SAMPLING_BAD_WORD_INTS_MAX)
        return err_set(error, ERR_INVALID, "bad_words: %u numbers are more than %u",
                       sampling->bad_word_ints, SAMPLING_BAD_WORD_INTS_MAX);
    for (uint32_t at = 0; at < sampling->bad_word_ints;) {
        int32_t length = sampling->bad_words[at++];
        if (length < 1 || (uint32_t)length > sampling->bad_word_ints - at)
            return err_set(error, ERR_INVALID, "bad_words: a run of %d tokens", length);
        enum err err = check_tokens("bad_words", sampling->bad_words + at, (uint32_t)length,
                                    SAMPLING_BAD_WORD_INTS_MAX, vocab, error);
        if (err) return err;
        at += (uint32_t)length;
    }
    return OK;
}

static enum err check_penalties(const struct sampling *sampling, struct error *error) {
    enum err err = check_range("presence_penalty", sampling->presence_penalty, -2, 2, error);
    if (!err) err = check_range("frequency_penalty", sampling->frequency_penalty, -2, 2, error);
    if (!err) err = check_range("repetition_penalty", sampling->repetition_penalty, 0, 100, error);
    return err;
}

static enum err check_counts(const struct sampling *sampling, struct error *error) {
    if (sampling->top_logprobs > SAMPLING_TOP_LOGPROBS_MAX)
        return err_set(error, ERR_INVALID, "top_logprobs: %u is outside 0..%u",
                       sampling->top_logprobs, SAMPLING_TOP_LOGPROBS_MAX);
    if (sampling->top_logprobs > 0 && !sampling->logprobs)
        return err_set(error, ERR_INVALID, "top_logprobs: %u needs logprobs to be true",
                       sampling->top_logprobs);
    if (sampling->logprob_token_count > 0 && !sampling->logprobs)
        return err_set(error, ERR_INVALID, "logprob_token_ids: %u need logprobs to be true",
                       sampling->logprob_token_count);
    if (sampling->prompt_top_logprobs > (sampling->prompt_logprobs ? SAMPLING_TOP_LOGPROBS_MAX : 0))
        return err_set(error, ERR_INVALID, "prompt_logprobs: %u is outside 0..%u",
                       sampling->prompt_top_logprobs, SAMPLING_TOP_LOGPROBS_MAX);
    if (sampling->max_tokens > 0 && sampling->min_tokens > sampling->max_tokens)
        return err_set(error, ERR_INVALID, "min_tokens: %u is more than max_tokens %u",
                       sampling->min_tokens, sampling->max_tokens);
    return OK;
}

enum err sampling_check(const struct sampling *sampling, uint32_t vocab, struct error *error) {
    enum err err = check_range("temperature", sampling->temperature, 0, 100, error);
    if (!err) err = check_range("top_p", sampling->top_p, 0, 1, error);
    if (!err) err = check_range("min_p", sampling->min_p, 0, 1, error);
    if (!err) err = check_penalties(sampling, error);
    if (!err) err = check_counts(sampling, error);
    if (!err) err = check_biases(sampling, vocab, error);
    if (!err)
        err = check_tokens("stop_token_ids", sampling->stop_tokens, sampling->stop_token_count,
                           SAMPLING_STOP_TOKENS_MAX, vocab, error);
    if (!err)
        err = check_tokens("end tokens", sampling->end_tokens, sampling->end_token_count,
                           SAMPLING_STOP_TOKENS_MAX, vocab, error);
    if (!err)
        err =
            check_tokens("allowed_token_ids", sampling->allowed_tokens,
                         sampling->allowed_token_count, SAMPLING_ALLOWED_TOKENS_MAX, vocab, error);
    if (!err)
        err =
            check_tokens("logprob_token_ids", sampling->logprob_tokens,
                         sampling->logprob_token_count, SAMPLING_LOGPROB_TOKENS_MAX, vocab, error);
    if (!err) err = check_bad_words(sampling, vocab, error);
    return err;
}

bool sampling_has_repetition(const struct sampling *sampling) {
    return sampling->repetition_penalty != 0.0f && sampling->repetition_penalty != 1.0f;
}

bool sampling_has_frequency(const struct sampling *sampling) {
    return sampling->presence_penalty != 0.0f || sampling->frequency_penalty != 0.0f;
}

static bool holds_token(const int32_t *tokens, uint32_t count, int32_t token) {
    for (uint32_t i = 0; i < count; i++)
        if (tokens[i] == token) return true;
    return false;
}

bool sampling_is_stop(const struct sampling *sampling, int32_t token, uint32_t generated) {
    if (generated <= sampling->min_tokens) return false;
    if (holds_token(sampling->stop_tokens, sampling->stop_token_count, token)) return true;
    return !sampling->ignore_eos &&
           holds_token(sampling->end_tokens, sampling->end_token_count, token);
}
