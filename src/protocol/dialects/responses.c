/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/responses.h"

#include "base/mem.h"
#include "json/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))
#define SHOWN_BYTES 60                /* most of a client's value that a sentence repeats */
#define TOKENS_MAX 9007199254740992.0 /* 2^53: each whole number up to it is a double */
#define METADATA_MAX 16

/* The members of a request that this server reads. */
struct asked {
    struct str model, input, instructions, stream, max_output_tokens, temperature, top_p;
    struct str top_logprobs, parallel_tool_calls, service_tier, metadata, user, text, reasoning;
    struct str tools, tool_choice, include, truncation, store, max_tool_calls;
    struct str safety_identifier, prompt_cache_key;
    struct str previous_response_id, conversation, prompt, background;
};

static bool find(struct str object, struct asked *asked, struct refusal *refusal) {
    const struct member places[] = {{"model", &asked->model},
                                    {"input", &asked->input},
                                    {"instructions", &asked->instructions},
                                    {"stream", &asked->stream},
                                    {"max_output_tokens", &asked->max_output_tokens},
                                    {"temperature", &asked->temperature},
                                    {"top_p", &asked->top_p},
                                    {"top_logprobs", &asked->top_logprobs},
                                    {"parallel_tool_calls", &asked->parallel_tool_calls},
                                    {"service_tier", &asked->service_tier},
                                    {"metadata", &asked->metadata},
                                    {"user", &asked->user},
                                    {"text", &asked->text},
                                    {"reasoning", &asked->reasoning},
                                    {"tools", &asked->tools},
                                    {"tool_choice", &asked->tool_choice},
                                    {"include", &asked->include},
                                    {"truncation", &asked->truncation},
                                    {"store", &asked->store},
                                    {"max_tool_calls", &asked->max_tool_calls},
                                    {"safety_identifier", &asked->safety_identifier},
                                    {"prompt_cache_key", &asked->prompt_cache_key},
                                    {"previous_response_id", &asked->previous_response_id},
                                    {"conversation", &asked->conversation},
                                    {"prompt", &asked->prompt},
                                    {"background", &asked->background}};
    return members_read(object, places, COUNT(places), refusal);
}

bool responses_refuse_kind(struct refusal *refusal, const char *param, const char *expected,
                           struct str got) {
    if (!got.at)
        return refuse(refusal, "missing_required_parameter", param,
                      "Missing required parameter: '%s'.", param);
    return refuse(refusal, "invalid_type", param, "Invalid type for '%s': expected %s, got %s.",
                  param, expected, member_kind(got));
}

/* --- what is refused --- */

static bool refuse_kept(struct refusal *refusal, const char *param) {
    return refuse(refusal, "unsupported_parameter", param,
                  "Unsupported parameter: '%s': this server keeps no responses; send the earlier "
                  "items in 'input'.",
                  param);
}

static bool check_state(const struct asked *asked, struct refusal *refusal) {
    if (asked->previous_response_id.at) return refuse_kept(refusal, "previous_response_id");
    if (asked->conversation.at) return refuse_kept(refusal, "conversation");
    if (asked->prompt.at)
        return refuse(refusal, "unsupported_parameter", "prompt",
                      "Unsupported parameter: 'prompt': this server keeps no prompts; send its "
                      "text in 'instructions' or 'input'.");
    if (member_is_true(asked->background))
        return refuse(refusal, "unsupported_parameter", "background",
                      "Unsupported parameter: 'background': this server keeps no responses; use "
                      "a stream, or a batch of '/v1/responses' lines.");
    return true;
}

static bool check_kinds(const struct asked *asked, struct refusal *refusal) {
    const struct {
        const char *name;
        struct str value;
    } bools[] = {{"stream", asked->stream},
                 {"store", asked->store},
                 {"background", asked->background},
                 {"parallel_tool_calls", asked->parallel_tool_calls}};
    for (size_t i = 0; i < COUNT(bools); i++)
        if (bools[i].value.at && !member_is_bool(bools[i].value))
            return responses_refuse_kind(refusal, bools[i].name, "a boolean", bools[i].value);
    struct str truncation = asked->truncation;
    bool is_text = !truncation.at || json_span_is_string(truncation);
    if (!is_text) return responses_refuse_kind(refusal, "truncation", "a string", truncation);
    if (truncation.at && !json_span_string_is(truncation, "auto") &&
        !json_span_string_is(truncation, "disabled"))
        return refuse(refusal, "invalid_value", "truncation",
                      "Invalid value for 'truncation': expected 'auto' or 'disabled', got %.*s.",
                      (int)(truncation.bytes < SHOWN_BYTES ? truncation.bytes : SHOWN_BYTES),
                      truncation.at);
    return true;
}

static bool check_metadata(struct str metadata, struct refusal *refusal) {
    struct json_span_iter iter;
    struct str key, value;
    size_t count = 0;
    if (!metadata.at) return true;
    if (!json_span_is_object(metadata) || !json_span_enter(&iter, metadata))
        return responses_refuse_kind(refusal, "metadata", "an object", metadata);
    for (; json_span_member(&iter, &key, &value); count++)
        if (!json_span_is_string(value))
            return responses_refuse_kind(refusal, "metadata", "an object of strings", value);
    return count <= METADATA_MAX ||
           refuse(refusal, "invalid_value", "metadata",
                  "Invalid value for 'metadata': at most %d pairs are allowed, got %zu.",
                  METADATA_MAX, count);
}

/* --- the request inside --- */

static bool read_head(struct dialect_call *call, const struct asked *asked,
                      struct refusal *refusal) {
    call->endpoint = ENDPOINT_CHAT;
    if (!json_span_is_string(asked->model) || member_is_empty(asked->model))
        return responses_refuse_kind(refusal, "model", "a string that is not empty", asked->model);
    json_span_decode(&call->model, asked->model);
    if (!check_state(asked, refusal) || !check_kinds(asked, refusal) ||
        !check_metadata(asked->metadata, refusal))
        return false;
    if (!asked->input.at) return responses_refuse_kind(refusal, "input", "a text", asked->input);
    call->stream = member_is_true(asked->stream);
    buf_add_text(&call->body, "{\"model\":");
    buf_add_str(&call->body, asked->model);
    return true;
}

/* Members that mean the same in a chat, whose worker checks them. */
static void add_same(struct dialect_call *call, struct str object) {
    static const char *const names[] = {RESPONSES_SAME_MEMBERS};
    struct str values[COUNT(names)];
    struct member places[COUNT(names)];
    struct refusal twice;
    for (size_t i = 0; i < COUNT(names); i++) places[i] = (struct member){names[i], &values[i]};
    (void)members_read(object, places, COUNT(names), &twice);
    for (size_t i = 0; i < COUNT(names); i++)
        if (values[i].at) dialect_add_member(&call->body, names[i], values[i]);
}

static bool add_bound(struct dialect_call *call, struct str value, struct refusal *refusal) {
    double count;
    if (!value.at) return true;
    if (!member_number(value, &count) || count != floor(count) || count > TOKENS_MAX)
        return responses_refuse_kind(refusal, "max_output_tokens", "an integer", value);
    if (count < 1)
        return refuse(refusal, "integer_below_min_value", "max_output_tokens",
                      "Invalid 'max_output_tokens': integer below minimum value. Expected a value "
                      ">= 1, but got %.0f instead.",
                      count);
    buf_printf(&call->body, ",\"max_tokens\":%.0f", count);
    return true;
}

static bool add_effort(struct dialect_call *call, struct str reasoning, struct refusal *refusal) {
    static const char *const words[][2] = {
        {"none", "\"none\""}, {"minimal", "\"low\""}, {"low", "\"low\""}, {"medium", "\"medium\""},
        {"high", "\"high\""}, {"xhigh", "\"high\""},  {"max", "\"high\""}};
    if (!reasoning.at) return true;
    if (!json_span_is_object(reasoning))
        return responses_refuse_kind(refusal, "reasoning", "an object", reasoning);
    struct str effort = json_span_get(reasoning, "effort");
    if (!effort.at || str_is(effort, "null")) return true;
    for (size_t i = 0; json_span_is_string(effort) && i < COUNT(words); i++)
        if (json_span_string_is(effort, words[i][0])) {
            dialect_add_member(&call->body, "reasoning_effort", str_from(words[i][1]));
            return true;
        }
    return refuse(refusal, "invalid_value", "reasoning.effort",
                  "Invalid value for 'reasoning.effort': expected 'none', 'minimal', 'low', "
                  "'medium', 'high', 'xhigh' or 'max', got %.*s.",
                  (int)(effort.bytes < SHOWN_BYTES ? effort.bytes : SHOWN_BYTES), effort.at);
}

/* What the answer is to show besides; names that mean nothing here are ignored. */
static bool add_include(struct dialect_call *call, const struct asked *asked,
                        struct refusal *refusal) {
    struct responses_state *state = call->own;
    struct json_span_iter iter;
    struct str name;
    double top = 0;
    if (asked->include.at &&
        (!member_is_array(asked->include) || !json_span_enter(&iter, asked->include)))
        return responses_refuse_kind(refusal, "include", "an array", asked->include);
    while (asked->include.at && json_span_element(&iter, &name)) {
        if (!json_span_is_string(name))
            return responses_refuse_kind(refusal, "include", "an array of strings", name);
        if (json_span_string_is(name, "message.output_text.logprobs")) call->wants_logprobs = true;
        if (json_span_string_is(name, "reasoning.encrypted_content")) state->shows_encrypted = true;
    }
    if (asked->top_logprobs.at && !member_number(asked->top_logprobs, &top))
        return responses_refuse_kind(refusal, "top_logprobs", "an integer", asked->top_logprobs);
    if (top > 0) call->wants_logprobs = true;
    if (!call->wants_logprobs) return true;
    buf_add_text(&call->body, ",\"logprobs\":true");
    if (asked->top_logprobs.at)
        dialect_add_member(&call->body, "top_logprobs", asked->top_logprobs);
    return true;
}

static bool read_tier(struct dialect_call *call, struct str value, struct refusal *refusal) {
    struct buf text;
    if (!value.at) return true;
    if (!json_span_is_string(value))
        return responses_refuse_kind(refusal, "service_tier", "a string", value);
    buf_init(&text, BUF_UNLIMITED);
    call->tier = tier_of_request(json_span_text(value, &text));
    buf_release(&text);
    return true;
}

/* --- what the answer repeats --- */

void responses_add_echo(struct buf *echo, const char *name, struct str value) {
    buf_printf(echo, ",\"%s\":", name);
    size_t at = echo->bytes;
    buf_add_str(echo, value);
    /* Strings of JSON have no raw ends of lines, and an event stands on one line. */
    for (; at < echo->bytes; at++)
        if (echo->at[at] == '\n' || echo->at[at] == '\r') echo->at[at] = ' ';
}

static struct str or_else(struct str value, const char *otherwise) {
    return value.at ? value : str_from(otherwise);
}

static void add_echo_reasoning(struct buf *echo, struct str reasoning) {
    struct str effort = {NULL, 0}, summary = {NULL, 0};
    if (reasoning.at) {
        effort = json_span_get(reasoning, "effort");
        summary = json_span_get(reasoning, "summary");
    }
    buf_add_text(echo, ",\"reasoning\":{\"effort\":");
    buf_add_str(echo, or_else(effort, "null"));
    responses_add_echo(echo, "summary", or_else(summary, "null"));
    buf_add_byte(echo, '}');
}

static void add_echo_text(struct buf *echo, struct str text) {
    struct str format = {NULL, 0}, verbosity = {NULL, 0};
    const struct member places[] = {{"format", &format}, {"verbosity", &verbosity}};
    struct refusal twice;
    if (text.at) (void)members_read(text, places, COUNT(places), &twice);
    buf_add_text(echo, ",\"text\":{\"format\":");
    if (format.at)
        buf_add_str(echo, format);
    else
        buf_add_text(echo, "{\"type\":\"text\"}");
    if (verbosity.at) responses_add_echo(echo, "verbosity", verbosity);
    buf_add_byte(echo, '}');
}

static void add_echo(struct dialect_call *call, const struct asked *asked) {
    struct responses_state *state = call->own;
    struct buf *echo = &state->echo;
    const struct {
        const char *name;
        struct str value;
        const char *otherwise;
    } rows[] = {{"instructions", asked->instructions, "null"},
                {"max_output_tokens", asked->max_output_tokens, "null"},
                {"max_tool_calls", asked->max_tool_calls, "null"},
                {"metadata", asked->metadata, "{}"},
                {"parallel_tool_calls", asked->parallel_tool_calls, "true"},
                {"temperature", asked->temperature, "1.0"},
                {"top_p", asked->top_p, "1.0"},
                {"top_logprobs", asked->top_logprobs, "0"},
                {"tool_choice", asked->tool_choice, "\"auto\""},
                {"tools", asked->tools, "[]"},
                {"user", asked->user, "null"},
                {"safety_identifier", asked->safety_identifier, "null"},
                {"prompt_cache_key", asked->prompt_cache_key, "null"}};
    for (size_t i = 0; i < COUNT(rows); i++)
        responses_add_echo(echo, rows[i].name, or_else(rows[i].value, rows[i].otherwise));
    buf_printf(echo,
               ",\"previous_response_id\":null,\"store\":false,\"background\":false,"
               "\"truncation\":\"disabled\",\"service_tier\":\"%s\"",
               tier_name(call->tier));
    add_echo_reasoning(echo, asked->reasoning);
    add_echo_text(echo, asked->text);
}

/* --- the dialect --- */

static void open_state(struct dialect_call *call) {
    struct responses_state *state = mem_new(1, sizeof *state);
    buf_init(&state->echo, BUF_UNLIMITED);
    buf_init(&state->items, BUF_UNLIMITED);
    buf_init(&state->text, BUF_UNLIMITED);
    buf_init(&state->logprobs, BUF_UNLIMITED);
    call->own = state;
}

static void release_state(struct dialect_call *call) {
    struct responses_state *state = call->own;
    if (!state) return;
    buf_release(&state->echo);
    buf_release(&state->items);
    buf_release(&state->text);
    buf_release(&state->logprobs);
    free(state);
}

static bool read_create(struct dialect_call *call, struct str object, struct refusal *refusal) {
    struct asked asked;
    open_state(call);
    if (!find(object, &asked, refusal) || !read_head(call, &asked, refusal) ||
        !responses_add_items(call, asked.instructions, asked.input, refusal) ||
        !responses_add_tools(call, asked.tools, asked.tool_choice, refusal) ||
        !responses_add_text(call, asked.text, refusal) ||
        !add_effort(call, asked.reasoning, refusal) ||
        !add_bound(call, asked.max_output_tokens, refusal) || !add_include(call, &asked, refusal) ||
        !read_tier(call, asked.service_tier, refusal))
        return false;
    add_same(call, object);
    add_echo(call, &asked);
    if (call->stream)
        buf_add_text(&call->body, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    buf_add_text(&call->body, ",\"translated\":true}");
    return true;
}

/* The request without the members that bound or sample an answer. */
static bool read_count_request(struct dialect_call *call, struct str object,
                               struct refusal *refusal) {
    struct asked asked;
    if (!find(object, &asked, refusal)) return false;
    asked.stream = (struct str){NULL, 0};
    if (!read_head(call, &asked, refusal) ||
        !responses_add_items(call, asked.instructions, asked.input, refusal) ||
        !responses_add_tools(call, asked.tools, asked.tool_choice, refusal) ||
        !add_effort(call, asked.reasoning, refusal))
        return false;
    call->endpoint = ENDPOINT_TOKENIZE;
    buf_add_text(&call->body, ",\"translated\":true}");
    return true;
}

static bool write_count(struct dialect_call *call, struct str inner, const struct dialect_end *end,
                        struct buf *body) {
    struct str object;
    (void)call, (void)end;
    if (!json_span_read(inner, &object) || !json_span_is_object(object)) return false;
    buf_printf(body, "{\"object\":\"response.input_tokens\",\"input_tokens\":%" PRIu64 "}",
               piece_count(object, NULL, "count"));
    return true;
}

const struct dialect responses_create = {
    .stream_type = "text/event-stream; charset=utf-8",
    .words = &responses_words,
    .read = read_create,
    .take = responses_take,
    .end = responses_end,
    .fail = responses_fail,
    .body = responses_body,
    .release = release_state,
};

const struct dialect responses_count = {
    .words = &responses_words, .read = read_count_request, .body = write_count};
