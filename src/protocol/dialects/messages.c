/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/messages.h"

#include "json/json.h"

#include <inttypes.h>
#include <math.h>

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))
#define BUDGET_TOKENS_MIN 1024
#define TOKENS_MAX 9007199254740992.0 /* 2^53: each whole number up to it is a double */

/* The members of a request that this server reads. */
struct asked {
    struct str model, messages, max_tokens, system, stream, temperature, top_p, top_k;
    struct str stop_sequences, tools, tool_choice, thinking, output_config, output_format;
    struct str mcp_servers, container;
};

static bool find(struct str object, struct asked *asked, struct refusal *refusal) {
    const struct member places[] = {{"model", &asked->model},
                                    {"messages", &asked->messages},
                                    {"max_tokens", &asked->max_tokens},
                                    {"system", &asked->system},
                                    {"stream", &asked->stream},
                                    {"temperature", &asked->temperature},
                                    {"top_p", &asked->top_p},
                                    {"top_k", &asked->top_k},
                                    {"stop_sequences", &asked->stop_sequences},
                                    {"tools", &asked->tools},
                                    {"tool_choice", &asked->tool_choice},
                                    {"thinking", &asked->thinking},
                                    {"output_config", &asked->output_config},
                                    {"output_format", &asked->output_format},
                                    {"mcp_servers", &asked->mcp_servers},
                                    {"container", &asked->container}};
    return members_read(object, places, COUNT(places), refusal);
}

static bool refuse_kind(struct refusal *refusal, const char *param, const char *expected,
                        struct str got) {
    return refuse(refusal, "invalid_type", param, "%s: expected %s, got %s", param, expected,
                  member_kind(got));
}

static bool refuse_absent(struct refusal *refusal, const char *param) {
    return refuse(refusal, "missing_required_parameter", param, "%s: Field required", param);
}

/* A whole number from `least` on. */
static bool read_count(struct str value, const char *param, double least, double *ret_count,
                       struct refusal *refusal) {
    if (!member_number(value, ret_count)) return refuse_kind(refusal, param, "an integer", value);
    if (*ret_count == floor(*ret_count) && *ret_count >= least && *ret_count <= TOKENS_MAX)
        return true;
    return refuse(refusal, "invalid_value", param, "%s: expected an integer from %.0f on, got %.*s",
                  param, least, (int)(value.bytes < 40 ? value.bytes : 40), value.at);
}

static bool read_head(struct dialect_call *call, const struct asked *asked,
                      struct refusal *refusal) {
    call->endpoint = ENDPOINT_CHAT;
    if (!asked->model.at) return refuse_absent(refusal, "model");
    if (!json_span_is_string(asked->model) || member_is_empty(asked->model))
        return refuse_kind(refusal, "model", "a string that is not empty", asked->model);
    json_span_decode(&call->model, asked->model);
    if (!asked->messages.at) return refuse_absent(refusal, "messages");
    if (!member_is_array(asked->messages))
        return refuse_kind(refusal, "messages", "an array", asked->messages);
    if (member_is_empty(asked->messages))
        return refuse(refusal, "invalid_value", "messages",
                      "messages: at least one message is required");
    if (asked->stream.at && !member_is_bool(asked->stream))
        return refuse_kind(refusal, "stream", "a boolean", asked->stream);
    call->stream = member_is_true(asked->stream);
    if (!member_is_empty(asked->mcp_servers))
        return refuse(refusal, "unsupported_parameter", "mcp_servers",
                      "mcp_servers: this server calls no servers of tools");
    if (asked->container.at)
        return refuse(refusal, "unsupported_parameter", "container",
                      "container: this server runs no code");
    buf_add_text(&call->body, "{\"model\":");
    buf_add_str(&call->body, asked->model);
    return true;
}

static bool add_samplers(struct dialect_call *call, const struct asked *asked,
                         struct refusal *refusal) {
    const struct {
        const char *name;
        struct str value;
    } rows[] = {
        {"temperature", asked->temperature}, {"top_p", asked->top_p}, {"top_k", asked->top_k}};
    double number;
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (!rows[i].value.at) continue;
        if (!member_number(rows[i].value, &number))
            return refuse_kind(refusal, rows[i].name, "a number", rows[i].value);
        dialect_add_member(&call->body, rows[i].name, rows[i].value);
    }
    return true;
}

static bool add_stops(struct dialect_call *call, struct str stops, struct refusal *refusal) {
    struct json_span_iter iter;
    struct str stop;
    bool has_one = false;
    if (!stops.at) return true;
    if (!member_is_array(stops) || !json_span_enter(&iter, stops))
        return refuse_kind(refusal, "stop_sequences", "an array", stops);
    while (json_span_element(&iter, &stop)) {
        if (!json_span_is_string(stop))
            return refuse_kind(refusal, "stop_sequences", "an array of strings", stop);
        if (member_is_empty(stop)) continue;
        buf_add_text(&call->body, has_one ? "," : ",\"stop\":[");
        buf_add_str(&call->body, stop);
        has_one = true;
    }
    if (has_one) buf_add_byte(&call->body, ']');
    return true;
}

/* Appends what the thinking is to be. *ret_is_off: none at all. */
static bool add_thinking(struct dialect_call *call, struct str thinking, double max_tokens,
                         bool *ret_is_off, struct refusal *refusal) {
    struct str type, budget;
    const struct member places[] = {{"type", &type}, {"budget_tokens", &budget}};
    double tokens;
    *ret_is_off = false;
    if (!thinking.at) return true;
    if (!json_span_is_object(thinking))
        return refuse_kind(refusal, "thinking", "an object", thinking);
    if (!members_read(thinking, places, COUNT(places), refusal)) return false;
    if (!json_span_is_string(type)) return refuse_kind(refusal, "thinking.type", "a string", type);
    if (json_span_string_is(type, "disabled")) {
        *ret_is_off = true;
        dialect_add_member(&call->body, "reasoning_effort", STR("\"none\""));
        return true;
    }
    if (json_span_string_is(type, "adaptive") || json_span_string_is(type, "between_tools"))
        return true;
    if (!json_span_string_is(type, "enabled"))
        return refuse(refusal, "invalid_value", "thinking.type",
                      "thinking.type: expected 'enabled', 'disabled' or 'adaptive', got %.*s",
                      (int)(type.bytes < 60 ? type.bytes : 60), type.at);
    if (!budget.at) return refuse_absent(refusal, "thinking.budget_tokens");
    if (!read_count(budget, "thinking.budget_tokens", BUDGET_TOKENS_MIN, &tokens, refusal))
        return false;
    if (tokens >= max_tokens)
        return refuse(refusal, "invalid_value", "thinking.budget_tokens",
                      "thinking.budget_tokens: %.0f is not less than max_tokens, %.0f", tokens,
                      max_tokens);
    buf_printf(&call->body, ",\"thinking_token_budget\":%.0f", tokens);
    return true;
}

static bool add_effort(struct dialect_call *call, struct str effort, struct refusal *refusal) {
    static const char *const words[][2] = {{"low", "\"low\""},
                                           {"medium", "\"medium\""},
                                           {"high", "\"high\""},
                                           {"xhigh", "\"high\""},
                                           {"max", "\"high\""}};
    for (size_t i = 0; json_span_is_string(effort) && i < COUNT(words); i++)
        if (json_span_string_is(effort, words[i][0])) {
            dialect_add_member(&call->body, "reasoning_effort", str_from(words[i][1]));
            return true;
        }
    return refuse(refusal, "invalid_value", "output_config.effort",
                  "output_config.effort: expected 'low', 'medium', 'high', 'xhigh' or 'max', got "
                  "%.*s",
                  (int)(effort.bytes < 60 ? effort.bytes : 60), effort.at);
}

static bool add_format(struct dialect_call *call, struct str format, const char *param,
                       struct refusal *refusal) {
    struct str type, schema;
    const struct member places[] = {{"type", &type}, {"schema", &schema}};
    if (!json_span_is_object(format)) return refuse_kind(refusal, param, "an object", format);
    if (!members_read(format, places, COUNT(places), refusal)) return false;
    if (!json_span_is_string(type) || !json_span_string_is(type, "json_schema"))
        return refuse(refusal, "invalid_value", param, "%s: expected the type 'json_schema'",
                      param);
    if (!json_span_is_object(schema))
        return refuse(refusal, "invalid_type", param, "%s: its schema must be an object, got %s",
                      param, member_kind(schema));
    buf_add_text(&call->body, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
                              "\"name\":\"format\",\"schema\":");
    buf_add_str(&call->body, schema);
    buf_add_text(&call->body, "}}");
    return true;
}

static bool add_output(struct dialect_call *call, const struct asked *asked, bool is_off,
                       struct refusal *refusal) {
    struct str effort = {NULL, 0}, format = {NULL, 0};
    const struct member places[] = {{"effort", &effort}, {"format", &format}};
    struct str config = asked->output_config;
    if (config.at && !json_span_is_object(config))
        return refuse_kind(refusal, "output_config", "an object", config);
    if (config.at && !members_read(config, places, COUNT(places), refusal)) return false;
    if (effort.at && !is_off && !add_effort(call, effort, refusal)) return false;
    if (format.at) return add_format(call, format, "output_config.format", refusal);
    return !asked->output_format.at ||
           add_format(call, asked->output_format, "output_format", refusal);
}

static bool read_create(struct dialect_call *call, struct str object, struct refusal *refusal) {
    struct asked asked;
    double max_tokens;
    bool is_off;
    if (!find(object, &asked, refusal) || !read_head(call, &asked, refusal)) return false;
    if (!asked.max_tokens.at) return refuse_absent(refusal, "max_tokens");
    if (!read_count(asked.max_tokens, "max_tokens", 1, &max_tokens, refusal)) return false;
    if (!messages_add_turns(call, asked.system, asked.messages, refusal) ||
        !messages_add_tools(call, asked.tools, asked.tool_choice, refusal) ||
        !add_samplers(call, &asked, refusal) || !add_stops(call, asked.stop_sequences, refusal) ||
        !add_thinking(call, asked.thinking, max_tokens, &is_off, refusal) ||
        !add_output(call, &asked, is_off, refusal))
        return false;
    buf_printf(&call->body, ",\"max_tokens\":%.0f", max_tokens);
    if (call->stream)
        buf_add_text(&call->body, ",\"stream\":true,\"stream_options\":{\"include_usage\":true,"
                                  "\"continuous_usage_stats\":true}");
    buf_add_text(&call->body, ",\"translated\":true}");
    return true;
}

/* The request without the members that bound or sample an answer. */
static bool read_count_request(struct dialect_call *call, struct str object,
                               struct refusal *refusal) {
    struct asked asked;
    bool is_off;
    if (!find(object, &asked, refusal)) return false;
    asked.stream = (struct str){NULL, 0};
    if (!read_head(call, &asked, refusal) ||
        !messages_add_turns(call, asked.system, asked.messages, refusal) ||
        !messages_add_tools(call, asked.tools, asked.tool_choice, refusal) ||
        !add_thinking(call, asked.thinking, TOKENS_MAX, &is_off, refusal))
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
    buf_printf(body, "{\"input_tokens\":%" PRIu64 "}", piece_count(object, NULL, "count"));
    return true;
}

const struct dialect messages_create = {
    .stream_type = "text/event-stream; charset=utf-8",
    .words = &messages_words,
    .read = read_create,
    .take = messages_take,
    .end = messages_end,
    .fail = messages_fail,
    .quiet = messages_quiet,
    .body = messages_body,
};

const struct dialect messages_count = {
    .words = &messages_words, .read = read_count_request, .body = write_count};
