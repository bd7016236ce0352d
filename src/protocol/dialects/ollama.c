/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/ollama.h"

#include "dialects/duration.h"
#include "json/json.h"

#include <math.h>
#include <string.h>

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))
#define TOP_LOGPROBS_MAX 20

/* The members of chat and generate that this server reads. */
struct asked {
    struct str model, messages, prompt, system, stream, format, options, tools, think, keep_alive;
    struct str logprobs, top_logprobs, raw, suffix, template, context, images, truncate, shift;
};

static bool find(struct str object, struct asked *asked, struct refusal *refusal) {
    const struct member places[] = {
        {"model", &asked->model},       {"messages", &asked->messages},
        {"prompt", &asked->prompt},     {"system", &asked->system},
        {"stream", &asked->stream},     {"format", &asked->format},
        {"options", &asked->options},   {"tools", &asked->tools},
        {"think", &asked->think},       {"keep_alive", &asked->keep_alive},
        {"logprobs", &asked->logprobs}, {"top_logprobs", &asked->top_logprobs},
        {"raw", &asked->raw},           {"suffix", &asked->suffix},
        {"template", &asked->template}, {"context", &asked->context},
        {"images", &asked->images},     {"truncate", &asked->truncate},
        {"shift", &asked->shift}};
    return members_read(object, places, COUNT(places), refusal);
}

static bool refuse_kind(struct refusal *refusal, const char *param, const char *expected,
                        struct str got) {
    return refuse(refusal, "invalid_type", param, "Invalid type for '%s': expected %s, got %s.",
                  param, expected, member_kind(got));
}

static bool check_bool(struct str value, const char *param, struct refusal *refusal) {
    if (!value.at || member_is_bool(value)) return true;
    return refuse_kind(refusal, param, "a boolean", value);
}

static bool check_text(struct str value, const char *param, struct refusal *refusal) {
    if (!value.at || json_span_is_string(value)) return true;
    return refuse_kind(refusal, param, "a string", value);
}

bool ollama_read_model(struct dialect_call *call, struct str model, struct refusal *refusal) {
    if (!check_text(model, "model", refusal)) return false;
    if (member_is_empty(model))
        return refuse(refusal, "missing_required_parameter", "model", "model is required");
    json_span_decode(&call->model, model);
    return true;
}

bool ollama_read_keep_alive(struct dialect_call *call, struct str value, struct refusal *refusal) {
    struct buf text;
    double seconds;
    if (!value.at) return true;
    bool is_read = member_number(value, &seconds) && isfinite(seconds);
    buf_init(&text, 256);
    if (!is_read && json_span_is_string(value) && value.bytes < 64) {
        json_span_decode(&text, value);
        buf_add_byte(&text, '\0');
        is_read = strlen(text.at) + 1 == text.bytes && duration_read(text.at, &seconds);
    }
    buf_release(&text);
    if (!is_read)
        return refuse(refusal, "invalid_value", "keep_alive", "time: invalid duration %.*s",
                      (int)(value.bytes < 64 ? value.bytes : 64), value.at);
    call->keep_ms = duration_keep_of(seconds);
    return true;
}

bool ollama_check_images(struct str images, const char *param, struct refusal *refusal) {
    if (member_is_empty(images)) return true;
    return refuse(refusal, "unsupported_parameter", param, "%s: this model does not take images",
                  param);
}

static bool add_format(struct dialect_call *call, struct str format, struct refusal *refusal) {
    if (!format.at || str_is(format, "\"\"")) return true;
    if (json_span_is_string(format) && json_span_string_is(format, "json")) {
        dialect_add_member(&call->body, "response_format", STR("{\"type\":\"json_object\"}"));
        return true;
    }
    if (!json_span_is_object(format))
        return refuse(refusal, "invalid_value", "format",
                      "invalid format: expected \"json\" or a JSON schema, got %.*s",
                      (int)(format.bytes < 100 ? format.bytes : 100), format.at);
    buf_add_text(&call->body, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
                              "\"name\":\"format\",\"schema\":");
    buf_add_str(&call->body, format);
    buf_add_text(&call->body, "}}");
    return true;
}

static bool add_tools(struct dialect_call *call, struct str tools, struct refusal *refusal) {
    if (!tools.at) return true;
    if (!member_is_array(tools)) return refuse_kind(refusal, "tools", "an array", tools);
    call->wants_tools = !member_is_empty(tools);
    if (call->wants_tools) dialect_add_member(&call->body, "tools", tools);
    return true;
}

static bool add_think(struct dialect_call *call, struct str think, struct refusal *refusal) {
    static const char *const words[][2] = {
        {"low", "\"low\""}, {"medium", "\"medium\""}, {"high", "\"high\""}, {"max", "\"high\""}};
    if (!think.at) return true;
    call->wants_thought = !str_is(think, "false");
    if (str_is(think, "true")) return true;
    if (str_is(think, "false")) {
        dialect_add_member(&call->body, "reasoning_effort", STR("\"none\""));
        return true;
    }
    for (size_t i = 0; json_span_is_string(think) && i < COUNT(words); i++)
        if (json_span_string_is(think, words[i][0])) {
            dialect_add_member(&call->body, "reasoning_effort", str_from(words[i][1]));
            return true;
        }
    return refuse(refusal, "invalid_value", "think",
                  "invalid think value: %.*s (expected true, false, \"low\", \"medium\", \"high\" "
                  "or \"max\")",
                  (int)(think.bytes < 100 ? think.bytes : 100), think.at);
}

static bool add_logprobs(struct dialect_call *call, const struct asked *asked,
                         struct refusal *refusal) {
    double top = 0;
    if (!check_bool(asked->logprobs, "logprobs", refusal)) return false;
    if (asked->top_logprobs.at && (!member_number(asked->top_logprobs, &top) || top < 0 ||
                                   top > TOP_LOGPROBS_MAX || top != floor(top)))
        return refuse(refusal, "invalid_value", "top_logprobs",
                      "top_logprobs must be between 0 and %d", TOP_LOGPROBS_MAX);
    call->wants_logprobs = member_is_true(asked->logprobs);
    if (!call->wants_logprobs) return true;
    if (call->is_bare)
        return refuse(refusal, "unsupported_parameter", "logprobs",
                      "logprobs are not given in raw mode: use /v1/completions");
    buf_printf(&call->body, ",\"logprobs\":true,\"top_logprobs\":%d", (int)top);
    return true;
}

/* What chat and generate have in common, after the messages or the prompt. */
static bool add_common(struct dialect_call *call, const struct asked *asked,
                       struct refusal *refusal) {
    struct buf *body = &call->body;
    if (!ollama_add_options(call, asked->options, refusal) ||
        !add_format(call, asked->format, refusal) || !add_logprobs(call, asked, refusal))
        return false;
    if (!call->is_bare && !add_think(call, asked->think, refusal)) return false;
    if (call->stream)
        buf_add_text(body, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    buf_add_text(body, ",\"translated\":true}");
    return true;
}

/* The members that every request of both may have. */
static bool read_common(struct dialect_call *call, const struct asked *asked,
                        struct refusal *refusal) {
    if (!ollama_read_model(call, asked->model, refusal) ||
        !check_bool(asked->stream, "stream", refusal) ||
        !check_bool(asked->truncate, "truncate", refusal) ||
        !check_bool(asked->shift, "shift", refusal) ||
        !ollama_read_keep_alive(call, asked->keep_alive, refusal))
        return false;
    call->stream = !str_is(asked->stream, "false");
    return true;
}

/* A request without a question loads the model, or with keep_alive 0 unloads it. */
static bool rest(struct dialect_call *call) {
    call->wish = call->keep_ms == KEEP_NOT ? DIALECT_UNLOAD : DIALECT_LOAD;
    call->stream = false;
    return true;
}

static void begin_body(struct dialect_call *call, struct str model) {
    buf_add_text(&call->body, "{\"model\":");
    buf_add_str(&call->body, model);
}

static bool read_chat(struct dialect_call *call, struct str object, struct refusal *refusal) {
    struct asked asked;
    call->endpoint = ENDPOINT_CHAT;
    if (!find(object, &asked, refusal) || !read_common(call, &asked, refusal)) return false;
    if (asked.messages.at && !member_is_array(asked.messages))
        return refuse_kind(refusal, "messages", "an array", asked.messages);
    if (member_is_empty(asked.messages)) return rest(call);
    begin_body(call, asked.model);
    return ollama_add_messages(call, asked.messages, refusal) &&
           add_tools(call, asked.tools, refusal) && add_common(call, &asked, refusal);
}

/* Members of generate that ask for what this server does not do. */
static bool check_generate(const struct dialect_call *call, const struct asked *asked,
                           struct refusal *refusal) {
    if (!check_text(asked->prompt, "prompt", refusal) ||
        !check_text(asked->system, "system", refusal) || !check_bool(asked->raw, "raw", refusal) ||
        !ollama_check_images(asked->images, "images", refusal))
        return false;
    bool has_more = !member_is_empty(asked->system) || !member_is_empty(asked->template) ||
                    !member_is_empty(asked->context);
    if (member_is_true(asked->raw) && has_more)
        return refuse(refusal, "invalid_value", "raw",
                      "raw mode does not support template, system, or context");
    if (!member_is_empty(asked->suffix))
        return refuse(refusal, "unsupported_parameter", "suffix",
                      "\"%.*s\" does not support insert", STR_ARGS(buf_str(&call->model)));
    if (!member_is_empty(asked->template))
        return refuse(refusal, "unsupported_parameter", "template",
                      "template is not supported: the model's own template is used");
    if (!member_is_empty(asked->context))
        return refuse(refusal, "unsupported_parameter", "context",
                      "context is not supported: send the conversation to /api/chat");
    return true;
}

static void add_turns(struct dialect_call *call, const struct asked *asked) {
    struct buf *body = &call->body;
    buf_add_text(body, ",\"messages\":[");
    if (!member_is_empty(asked->system)) {
        buf_add_text(body, "{\"role\":\"system\",\"content\":");
        buf_add_str(body, asked->system);
        buf_add_text(body, "},");
    }
    buf_add_text(body, "{\"role\":\"user\",\"content\":");
    buf_add_str(body, asked->prompt);
    buf_add_text(body, "}]");
}

static bool read_generate(struct dialect_call *call, struct str object, struct refusal *refusal) {
    struct asked asked;
    if (!find(object, &asked, refusal) || !read_common(call, &asked, refusal) ||
        !check_generate(call, &asked, refusal))
        return false;
    call->is_bare = member_is_true(asked.raw);
    call->endpoint = call->is_bare ? ENDPOINT_COMPLETIONS : ENDPOINT_CHAT;
    if (member_is_empty(asked.prompt)) return rest(call);
    begin_body(call, asked.model);
    if (call->is_bare)
        dialect_add_member(&call->body, "prompt", asked.prompt);
    else
        add_turns(call, &asked);
    return add_common(call, &asked, refusal);
}

const struct dialect ollama_chat = {
    .stream_type = "application/x-ndjson",
    .words = &ollama_words,
    .read = read_chat,
    .fits = ollama_fits,
    .take = ollama_take,
    .end = ollama_end,
    .fail = ollama_fail,
    .quiet = ollama_quiet,
    .body = ollama_body,
    .idle = ollama_idle,
};

const struct dialect ollama_generate = {
    .stream_type = "application/x-ndjson",
    .words = &ollama_words,
    .read = read_generate,
    .fits = ollama_fits,
    .take = ollama_take,
    .end = ollama_end,
    .fail = ollama_fail,
    .quiet = ollama_quiet,
    .body = ollama_body,
    .idle = ollama_idle,
};
