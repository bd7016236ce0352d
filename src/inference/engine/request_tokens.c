/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request_tokens.h"

#include "base/mem.h"
#include "engine/request_fields.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BAD_WORDS_MAX 1024
#define BAD_WORD_BYTES_MAX 1024

/* Parses an array of token ids; ret_list->at is NULL if the member is absent. */
static bool parse_list(const json_t *body, const char *param, size_t count_max,
                       uint32_t vocabulary_count, struct token_list *ret_list,
                       struct refusal *refusal) {
    const json_t *tokens = json_member(body, param);
    if (!tokens) return true;
    if (!json_is_array(tokens)) return refuse_type(refusal, param, "an array of integers", tokens);
    size_t count = json_array_size(tokens);
    if (count > count_max)
        return refuse(refusal, "array_above_max_length", param,
                      "Invalid '%s': array too long. Expected at most %zu items, but got %zu.",
                      param, count_max, count);
    ret_list->at = mem_new(count + 1, sizeof *ret_list->at);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(tokens, i);
        int64_t id;
        if (!field_whole_number(item, &id))
            return refuse_type(refusal, param, "an array of integers", item);
        if (id < 0 || id >= vocabulary_count)
            return refuse(refusal, "invalid_value", param,
                          "Invalid '%s': %" PRId64 " is not a token id of this model (0 to %u).",
                          param, id, vocabulary_count - 1);
        ret_list->at[ret_list->count++] = (int32_t)id;
    }
    return true;
}

/* Parses "17", but not "017", "+17" or " 17", so that no two keys name one token. */
static bool parse_token_key(const char *key, uint32_t vocabulary_count, int32_t *ret_token) {
    int64_t id;
    if (!str_to_i64(str_from(key), &id) || id < 0 || id >= vocabulary_count) return false;
    char canonical[24];
    snprintf(canonical, sizeof canonical, "%" PRId64, id);
    if (strcmp(canonical, key) != 0) return false;
    *ret_token = (int32_t)id;
    return true;
}

static bool parse_bias(struct request *request, const char *key, const json_t *value,
                       uint32_t vocabulary_count, struct refusal *refusal) {
    int32_t token;
    if (!parse_token_key(key, vocabulary_count, &token))
        return refuse(refusal, "invalid_value", "logit_bias",
                      "Invalid key in 'logit_bias': '%.64s' is not a token id of this model (0 to "
                      "%u).",
                      key, vocabulary_count - 1);
    char param[64];
    snprintf(param, sizeof param, "logit_bias.%s", key);
    const struct field field = {param, FIELD_NUMBER, .min = -100, .max = 100};
    double bias;
    if (!field_read(&request_fields, &field, value, &bias, refusal)) return false;
    request->biases[request->bias_count++] = (struct logit_bias){token, (float)bias};
    return true;
}

static bool parse_biases(struct request *request, uint32_t vocabulary_count,
                         struct refusal *refusal) {
    json_t *biases = json_member(request->body, "logit_bias");
    if (!biases) return true;
    if (!json_is_object(biases)) return refuse_type(refusal, "logit_bias", "an object", biases);
    size_t count = json_object_size(biases);
    if (count > SAMPLING_BIASES_MAX)
        return refuse(refusal, "object_above_max_properties", "logit_bias",
                      "Invalid 'logit_bias': too many properties. Expected at most %u, but got "
                      "%zu.",
                      SAMPLING_BIASES_MAX, count);
    request->biases = mem_new(count + 1, sizeof *request->biases);
    const char *key;
    json_t *value;
    json_object_foreach(biases, key, value) {
        if (!parse_bias(request, key, value, vocabulary_count, refusal)) return false;
    }
    return true;
}

static bool parse_allowed(struct request *request, uint32_t vocabulary_count,
                          struct refusal *refusal) {
    const char *param = "allowed_token_ids";
    if (!parse_list(request->body, param, SAMPLING_ALLOWED_TOKENS_MAX, vocabulary_count,
                    &request->allowed_tokens, refusal))
        return false;
    if (request->allowed_tokens.at && request->allowed_tokens.count == 0)
        return refuse(refusal, "array_below_min_length", param,
                      "Invalid '%s': an empty array would allow no token at all.", param);
    return true;
}

static bool parse_logprob_tokens(struct request *request, uint32_t vocabulary_count,
                                 struct refusal *refusal) {
    const char *param = "logprob_token_ids";
    if (!parse_list(request->body, param, SAMPLING_LOGPROB_TOKENS_MAX, vocabulary_count,
                    &request->logprob_tokens, refusal))
        return false;
    const json_t *logprobs = json_member(request->body, "logprobs");
    if (request->logprob_tokens.count > 0 && (!logprobs || json_is_false(logprobs)))
        return refuse(refusal, "invalid_value", param,
                      "Invalid '%s': it is only allowed together with 'logprobs'.", param);
    const struct token_list *list = &request->logprob_tokens;
    for (uint32_t i = 0; i < list->count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (list->at[i] == list->at[k])
                return refuse(refusal, "invalid_value", param,
                              "Invalid '%s': %" PRId32 " is there twice.", param, list->at[i]);
    return true;
}

/* Checks only the form of bad_words; prep encodes them. */
static bool check_bad_words(struct request *request, struct refusal *refusal) {
    const char *param = "bad_words";
    json_t *words = json_member(request->body, param);
    if (!words) return true;
    if (!json_is_array(words)) return refuse_type(refusal, param, "an array of strings", words);
    if (json_array_size(words) > BAD_WORDS_MAX)
        return refuse(refusal, "array_above_max_length", param,
                      "Invalid '%s': array too long. Expected at most %d items, but got %zu.",
                      param, BAD_WORDS_MAX, json_array_size(words));
    for (size_t i = 0; i < json_array_size(words); i++) {
        char item_param[32];
        snprintf(item_param, sizeof item_param, "%s[%zu]", param, i);
        const json_t *word = json_array_get(words, i);
        if (!json_is_string(word)) return refuse_type(refusal, item_param, "a string", word);
        struct str text = json_str(word);
        if (str_trim(text).bytes == 0)
            return refuse(refusal, "invalid_value", item_param,
                          "Invalid '%s': a word must not be empty.", item_param);
        if (text.bytes > BAD_WORD_BYTES_MAX)
            return refuse(refusal, "string_above_max_length", item_param,
                          "Invalid '%s': string too long. Expected at most %d bytes, but got %zu.",
                          item_param, BAD_WORD_BYTES_MAX, text.bytes);
    }
    request->bad_words = words;
    return true;
}

bool request_parse_tokens(struct request *request, uint32_t vocabulary_count,
                          struct refusal *ret_refusal) {
    return parse_list(request->body, "stop_token_ids", SAMPLING_STOP_TOKENS_MAX, vocabulary_count,
                      &request->stop_tokens, ret_refusal) &&
           parse_biases(request, vocabulary_count, ret_refusal) &&
           parse_allowed(request, vocabulary_count, ret_refusal) &&
           parse_logprob_tokens(request, vocabulary_count, ret_refusal) &&
           check_bad_words(request, ret_refusal);
}
