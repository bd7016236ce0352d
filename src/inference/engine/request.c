/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request.h"

#include "engine/request_fields.h"
#include "engine/request_messages.h"
#include "engine/request_tokens.h"
#include "engine/request_tools.h"
#include "json/json.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct request, member)

static bool parse_seed(struct request *request, struct refusal *refusal) {
    const json_t *seed = json_member(request->body, "seed");
    if (!seed) return true;
    if (!field_whole_number(seed, &request->seed))
        return refuse_type(refusal, "seed", "an integer", seed);
    request->has_seed = true;
    return true;
}

static bool parse_stop(struct request *request, const char *param, const json_t *stop,
                       struct refusal *refusal) {
    struct str text = json_str(stop);
    if (!json_is_string(stop)) return refuse_type(refusal, param, "a string", stop);
    if (text.bytes == 0)
        return refuse(refusal, "invalid_value", param,
                      "Invalid '%s': a stop sequence must not be the empty string ''.", param);
    if (text.bytes > REQUEST_STOP_BYTES_MAX)
        return refuse(refusal, "string_above_max_length", param,
                      "Invalid '%s': string too long. Expected at most %d bytes, but got %zu.",
                      param, REQUEST_STOP_BYTES_MAX, text.bytes);
    request->stops[request->stop_count++] = text;
    return true;
}

static bool parse_stops(struct request *request, struct refusal *refusal) {
    const json_t *stop = json_member(request->body, "stop");
    if (!stop) return true;
    if (json_is_string(stop)) return parse_stop(request, "stop", stop, refusal);
    if (!json_is_array(stop))
        return refuse_type(refusal, "stop", "a string or an array of strings", stop);
    size_t count = json_array_size(stop);
    size_t most = request->is_translated ? REQUEST_STOPS_MAX : REQUEST_STOPS_MAX_OPENAI;
    if (count > most)
        return refuse(refusal, "array_above_max_length", "stop",
                      "Invalid 'stop': array too long. Expected at most %zu stop sequences, but "
                      "got %zu.",
                      most, count);
    for (size_t i = 0; i < count; i++) {
        char param[32];
        snprintf(param, sizeof param, "stop[%zu]", i);
        if (!parse_stop(request, param, json_array_get(stop, i), refusal)) return false;
    }
    return true;
}

/* Parses stream_options, which is allowed only with `stream`; ignores its unknown members. */
static bool parse_stream_options(struct request *request, struct refusal *refusal) {
    const json_t *options = json_member(request->body, "stream_options");
    if (!options) return true;
    if (!json_is_object(options))
        return refuse_type(refusal, "stream_options", "an object", options);
    if (!request->stream)
        return refuse(refusal, "invalid_value", "stream_options",
                      "Invalid 'stream_options': it is only allowed when 'stream' is true.");
    const json_t *usage = json_member(options, "include_usage");
    if (usage && !json_is_boolean(usage))
        return refuse_type(refusal, "stream_options.include_usage", "a boolean", usage);
    request->include_usage = json_is_true(usage);
    const json_t *continuous = json_member(options, "continuous_usage_stats");
    if (continuous && !json_is_boolean(continuous))
        return refuse_type(refusal, "stream_options.continuous_usage_stats", "a boolean",
                           continuous);
    request->continuous_usage = request->include_usage && json_is_true(continuous);
    return true;
}

static bool check_choice(const json_t *body, const char *name, const char *const *choices,
                         struct refusal *refusal) {
    const json_t *value = json_member(body, name);
    const struct field field = {name, FIELD_CHOICE, .choices = choices};
    struct str ignored;
    return !value || field_read(&request_fields, &field, value, &ignored, refusal);
}

static bool check_modalities(const json_t *body, struct refusal *refusal) {
    const json_t *list = json_member(body, "modalities");
    if (!list) return true;
    if (!json_is_array(list))
        return refuse_type(refusal, "modalities", "an array of strings", list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_string(item))
            return refuse_type(refusal, "modalities", "an array of strings", item);
        if (!str_is(json_str(item), "text"))
            return refuse_value(refusal, "modalities", item, "'text'");
    }
    return true;
}

/* Parses the variables that the template sees in addition to messages and tools. The names that the
 * server sets are refused, because a client could forge the conversation with them. */
static bool parse_template_variables(struct request *request, struct refusal *refusal) {
    static const char *const reserved[] = {"messages",
                                           "tools",
                                           "documents",
                                           "add_generation_prompt",
                                           "continue_final_message",
                                           "chat_template",
                                           "tokenize",
                                           "bos_token",
                                           "eos_token",
                                           "unk_token",
                                           "pad_token",
                                           NULL};
    const char *param = "chat_template_kwargs";
    json_t *variables = json_member(request->body, param);
    if (!variables) return true;
    if (!json_is_object(variables)) return refuse_type(refusal, param, "an object", variables);
    for (size_t i = 0; reserved[i]; i++)
        if (json_object_get(variables, reserved[i]))
            return refuse(refusal, "invalid_value", param,
                          "Invalid '%s': '%s' is set by the server and cannot be passed here.",
                          param, reserved[i]);
    request->template_variables = variables;
    return true;
}

bool request_check_caller(const json_t *body, struct refusal *refusal) {
    static const char *const tiers[] = {"auto",     "default", "flex",  "scale",
                                        "priority", "fast",    "batch", NULL};
    const json_t *priority = json_member(body, "priority");
    int64_t ignored;
    if (priority && !field_whole_number(priority, &ignored))
        return refuse_type(refusal, "priority", "an integer", priority);
    const json_t *user = json_member(body, "user");
    if (user && !json_is_string(user)) return refuse_type(refusal, "user", "a string", user);
    return check_choice(body, "service_tier", tiers, refusal);
}

static bool check_accepted(const json_t *body, struct refusal *refusal) {
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   "max", NULL};
    /* Only for tokenizers that join tokens by spaces; quern has none of these. */
    const json_t *spaces = json_member(body, "spaces_between_special_tokens");
    if (spaces && !json_is_boolean(spaces))
        return refuse_type(refusal, "spaces_between_special_tokens", "a boolean", spaces);
    return request_check_caller(body, refusal) &&
           check_choice(body, "reasoning_effort", efforts, refusal) &&
           check_modalities(body, refusal);
}

/* Parses an optional string of 1 to `bytes_max` bytes. */
static bool parse_text_member(const json_t *body, const char *param, size_t bytes_max,
                              struct str *ret_text, struct refusal *refusal) {
    const json_t *value = json_member(body, param);
    if (!value) return true;
    if (!json_is_string(value)) return refuse_type(refusal, param, "a string", value);
    struct str text = json_str(value);
    if (text.bytes == 0)
        return refuse(refusal, "invalid_value", param,
                      "Invalid '%s': it must not be the empty string ''.", param);
    if (text.bytes > bytes_max)
        return refuse(refusal, "string_above_max_length", param,
                      "Invalid '%s': string too long. Expected at most %zu bytes, but got %zu.",
                      param, bytes_max, text.bytes);
    *ret_text = text;
    return true;
}

static bool parse_texts(struct request *request, struct refusal *refusal) {
    const json_t *body = request->body;
    request->service_tier = json_member_str(body, "service_tier");
    if (request->endpoint == ENDPOINT_CHAT &&
        !parse_text_member(body, "chat_template", REQUEST_TEMPLATE_BYTES_MAX,
                           &request->chat_template, refusal))
        return false;
    return parse_text_member(body, "request_id", REQUEST_ID_BYTES_MAX, &request->request_id,
                             refusal) &&
           parse_text_member(body, "cache_salt", REQUEST_SALT_BYTES_MAX, &request->cache_salt,
                             refusal);
}

static bool parse_prompt_logprobs(struct request *request, struct refusal *refusal) {
    const char *param = "prompt_logprobs";
    const json_t *value = json_member(request->body, param);
    if (!value) return true;
    const struct field field = {param, FIELD_INTEGER, .max = REQUEST_TOP_LOGPROBS_MAX,
                                .offset = AT(prompt_logprobs)};
    if (!field_read(&request_fields, &field, value, request, refusal)) return false;
    if (request->stream)
        return refuse(refusal, "invalid_value", param,
                      "Invalid '%s': they are not available when 'stream' is true.", param);
    request->has_prompt_logprobs = true;
    return true;
}

bool request_scores_prompt(const struct request *request) {
    return request->has_prompt_logprobs ||
           (request->echo && request->logprobs && request->endpoint == ENDPOINT_COMPLETIONS);
}

static bool parse_truncation(struct request *request, struct refusal *refusal) {
    const char *param = "truncate_prompt_tokens";
    const json_t *value = json_member(request->body, param);
    if (!value) return true;
    const struct field field = {param, FIELD_INTEGER, .min = -1, .max = REQUEST_NO_MAX,
                                .offset = AT(truncate_prompt_tokens)};
    if (!field_read(&request_fields, &field, value, request, refusal)) return false;
    if (request->truncate_prompt_tokens == 0)
        return refuse(refusal, "invalid_value", param,
                      "Invalid '%s': 0 would leave no prompt; use -1 or at least 1.", param);
    request->truncate_prompt = true;
    return true;
}

/* Checks the token ids of one prompt. */
static bool check_prompt_tokens(const json_t *tokens, uint32_t vocabulary_count,
                                struct refusal *refusal) {
    if (json_array_size(tokens) == 0)
        return refuse(refusal, "invalid_value", "prompt",
                      "Invalid 'prompt': an array of token ids must not be empty.");
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *item = json_array_get(tokens, i);
        if (!json_is_integer(item))
            return refuse_type(refusal, "prompt",
                               "a string, or an array of strings, token ids or arrays of token ids",
                               item);
        json_int_t id = json_integer_value(item);
        if (id < 0 || id >= vocabulary_count)
            return refuse(refusal, "invalid_value", "prompt",
                          "Invalid 'prompt': %lld is not a token id of this model (0 to %u).",
                          (long long)id, vocabulary_count - 1);
    }
    return true;
}

static bool parse_prompt(struct request *request, uint32_t vocabulary_count,
                         struct refusal *refusal) {
    json_t *prompt = json_member(request->body, "prompt");
    if (!prompt) return refuse_missing(refusal, "prompt");
    request->prompt = prompt;
    request->prompt_count = 1;
    if (request->ids.count > 0) {
        request->prompt_count = request->ids.count;
        return true;
    }
    if (json_is_string(prompt)) return true;
    if (!json_is_array(prompt) || json_array_size(prompt) == 0)
        return refuse_type(refusal, "prompt",
                           "a string, or a non-empty array of strings, token ids or arrays of "
                           "token ids",
                           prompt);
    json_t *first = json_array_get(prompt, 0);
    if (json_is_integer(first)) return check_prompt_tokens(prompt, vocabulary_count, refusal);
    request->prompt_count = json_array_size(prompt);
    for (size_t i = 0; i < request->prompt_count; i++) {
        json_t *item = json_array_get(prompt, i);
        if (json_is_string(first) && json_is_string(item)) continue;
        if (json_is_array(first) && json_is_array(item)) {
            if (!check_prompt_tokens(item, vocabulary_count, refusal)) return false;
            continue;
        }
        return refuse_type(refusal, "prompt", "all prompts of one kind, strings or token ids",
                           item);
    }
    return true;
}

static bool parse_text_logprobs(struct request *request, struct refusal *refusal) {
    const json_t *value = json_member(request->body, "logprobs");
    if (!value || json_is_false(value)) return true;
    const struct field field = {"logprobs", FIELD_INTEGER, .max = 5, .offset = AT(top_logprobs)};
    if (!field_read(&request_fields, &field, value, request, refusal)) return false;
    request->logprobs = true;
    return true;
}

static bool parse_best_of(struct request *request, struct refusal *refusal) {
    const json_t *value = json_member(request->body, "best_of");
    request->candidates = request->choices;
    if (!value) return true;
    const struct field field = {"best_of", FIELD_INTEGER, .min = (double)request->choices,
                                .max = REQUEST_CHOICES_MAX, .offset = AT(candidates)};
    if (!field_read(&request_fields, &field, value, request, refusal)) return false;
    if (request->candidates > request->choices && request->stream)
        return refuse(refusal, "invalid_value", "best_of",
                      "Invalid 'best_of': %lld candidates for %lld choices cannot be streamed, for "
                      "the best is known only at the end.",
                      (long long)request->candidates, (long long)request->choices);
    return true;
}

/* Parses max_tokens of a text completion: 0 only with `echo` (default 16). */
static bool parse_text_length(struct request *request, struct refusal *refusal) {
    const json_t *value = json_member(request->body, "max_tokens");
    if (!value) {
        request->max_tokens = 16;
    } else if (request->max_tokens == 0) {
        const struct field field = {"max_tokens", FIELD_INTEGER, .min = 1};
        if (!request->echo)
            return request_field_refuse(refusal, &(struct field_fault){FIELD_BELOW, &field, value});
        request->is_echo_only = true;
        request->max_tokens = 1;
    }
    return true;
}

static bool parse_text(struct request *request, uint32_t vocabulary_count,
                       struct refusal *refusal) {
    if (!parse_prompt(request, vocabulary_count, refusal) ||
        !parse_text_logprobs(request, refusal) || !parse_text_length(request, refusal))
        return false;
    if (request->prompt_count * (size_t)request->candidates > REQUEST_SEQUENCES_MAX)
        return refuse(refusal, "array_above_max_length", "prompt",
                      "Invalid 'prompt': %zu prompts of %lld candidates each are more than the %d "
                      "that a request can have.",
                      request->prompt_count, (long long)request->candidates, REQUEST_SEQUENCES_MAX);
    return true;
}

static bool parse_chat(struct request *request, struct refusal *refusal) {
    if (!request_check_messages(request->body, &request->memory_left, refusal) ||
        !request_parse_tools(request, refusal) || !parse_template_variables(request, refusal))
        return false;
    request->messages = json_member(request->body, "messages");
    request->reasoning_effort = json_member_str(request->body, "reasoning_effort");
    if (request->top_logprobs > 0 && !request->logprobs)
        return refuse(refusal, "invalid_value", "top_logprobs",
                      "Invalid 'top_logprobs': it is only allowed when 'logprobs' is true.");
    if (request->continue_final_message) {
        if (json_is_true(json_member(request->body, "add_generation_prompt")))
            return refuse(refusal, "invalid_value", "continue_final_message",
                          "Invalid 'continue_final_message': it cannot be true together with "
                          "'add_generation_prompt'.");
        request->add_generation_prompt = false;
    }
    return true;
}

static bool parse_members(struct request *request, uint32_t vocabulary_count,
                          struct refusal *refusal) {
    const json_t *model = require_member(request->body, "model", JSON_STRING, "model", refusal);
    if (!model) return false;
    request->model = json_str(model);
    if (!request_parse_fields(request, refusal) || !parse_seed(request, refusal) ||
        !parse_stops(request, refusal) ||
        !request_parse_tokens(request, vocabulary_count, refusal) ||
        !parse_truncation(request, refusal) || !parse_stream_options(request, refusal) ||
        !check_accepted(request->body, refusal) ||
        !asked_shape_read(request->body, &request->shape, refusal) ||
        !parse_texts(request, refusal) || !parse_prompt_logprobs(request, refusal) ||
        !parse_best_of(request, refusal))
        return false;
    if (request->endpoint == ENDPOINT_CHAT ? !parse_chat(request, refusal)
                                           : !parse_text(request, vocabulary_count, refusal))
        return false;
    if (request->max_tokens > 0 && request->min_tokens > request->max_tokens)
        return refuse(refusal, "integer_above_max_value", "min_tokens",
                      "Invalid 'min_tokens': %lld is more than the %lld of max_tokens.",
                      (long long)request->min_tokens, (long long)request->max_tokens);
    return true;
}

bool request_parse(struct request *ret_request, enum endpoint endpoint, struct str body,
                   uint32_t vocabulary_count, struct refusal *ret_refusal) {
    assert(endpoint == ENDPOINT_CHAT || endpoint == ENDPOINT_COMPLETIONS);
    struct request request = {
        .endpoint = endpoint,
        .choices = 1,
        .candidates = 1,
        .prompt_count = 1,
        .temperature = 1,
        .top_p = 1,
        .repetition_penalty = 1,
        .skip_special_tokens = true,
        .include_reasoning = true,
        .thinking_token_budget = -1,
        .add_generation_prompt = true,
        /* A chat template writes the BOS itself. */
        .add_special_tokens = endpoint == ENDPOINT_COMPLETIONS,
        /* The client writes a completion's prompt for the model; messages may come from third
         * parties. */
        .parse_special = endpoint == ENDPOINT_COMPLETIONS,
    };
    struct request_body read;
    if (!request_body_read(&read, body, "prompt", vocabulary_count, ret_refusal)) return false;
    request.body = read.values;
    request.ids = read.ids;
    request.memory_left = read.memory_left;
    bool is_good = parse_members(&request, vocabulary_count, ret_refusal);
    if (is_good)
        *ret_request = request;
    else
        request_release(&request);
    return is_good;
}

void request_release(struct request *request) {
    json_decref(request->shape.source);
    json_decref(request->body);
    id_lists_release(&request->ids);
    free(request->biases);
    free(request->stop_tokens.at);
    free(request->allowed_tokens.at);
    free(request->logprob_tokens.at);
    free(request->bad_word_runs.at);
    free(request->closing_tokens.at);
    *request = (struct request){.body = NULL};
}
