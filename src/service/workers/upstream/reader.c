/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/reader.h"

#include "base/min_max.h"
#include "json/envelope.h"
#include "json/json.h"
#include "json/span.h"
#include "workers/upstream/error.h"
#include "workers/upstream/overload.h"
#include "workers/upstream/repair.h"
#include "workers/upstream/whole.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FAULTY_MEMORY_MAX ((size_t)256 << 20) /* the tree that finds a text's fault */

/* --- numbers --- */

static uint32_t read_count(struct str object, const char *key) {
    uint64_t value = 0;
    struct str number = json_span_get(object, key);
    if (!number.at || !str_to_u64(number, &value)) return 0;
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

/* Cached tokens as OpenAI tells them, else as DeepSeek, else as llama-server. */
static uint32_t read_cached(struct str body, struct str usage) {
    struct str details = json_span_get(usage, "prompt_tokens_details");
    if (json_span_is_object(details)) return read_count(details, "cached_tokens");
    uint32_t cached = read_count(usage, "prompt_cache_hit_tokens");
    return cached ? cached : read_count(json_span_get(body, "timings"), "cache_n");
}

static void read_usage(struct str body, struct usage *ret_usage) {
    struct str usage = json_span_get(body, "usage");
    if (!json_span_is_object(usage)) return;
    struct usage found = {.input_tokens = read_count(usage, "prompt_tokens"),
                          .output_tokens = read_count(usage, "completion_tokens")};
    found.cached_tokens = min_u64(read_cached(body, usage), found.input_tokens);
    found.reasoning_tokens =
        min_u64(read_count(json_span_get(usage, "completion_tokens_details"), "reasoning_tokens"),
                found.output_tokens);
    *ret_usage = found;
}

/* --- bodies --- */

/* JSON text made ASCII on one line: line breaks can only be space between values. */
static void add_plain(struct buf *buf, struct str text) {
    size_t from = buf->bytes;
    json_span_add_ascii(buf, text);
    for (size_t i = from; i < buf->bytes; i++)
        if (buf->at[i] == '\n' || buf->at[i] == '\r') buf->at[i] = ' ';
}

/* Adds prompt_tokens_details, which vLLM omits or sets to null, because clients read them. */
static void add_usage(struct buf *buf, struct str usage, uint64_t cached) {
    struct json_span_iter iter;
    struct str key, value;
    const char *comma = "";
    buf_add_byte(buf, '{');
    bool inside = json_span_enter(&iter, usage);
    while (inside && json_span_member(&iter, &key, &value)) {
        if (json_span_string_is(key, "prompt_tokens_details")) continue;
        buf_add_text(buf, comma);
        add_plain(buf, key);
        buf_add_byte(buf, ':');
        add_plain(buf, value);
        comma = ",";
    }
    buf_printf(buf, "%s\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64 "}}", comma, cached);
}

/* The object with the client's name for the model, and a usage with its details. */
static void add_body(struct buf *buf, struct str body, const char *model,
                     const struct usage *usage) {
    struct json_span_iter iter;
    struct str key, value;
    const char *comma = "";
    struct str counts = json_span_get(body, "usage");
    bool has_details = !json_span_is_object(counts) || json_span_get(body, "data").at ||
                       json_span_is_object(json_span_get(counts, "prompt_tokens_details"));
    if (!model && has_details) {
        add_plain(buf, body);
        return;
    }
    buf_add_byte(buf, '{');
    bool inside = json_span_enter(&iter, body);
    while (inside && json_span_member(&iter, &key, &value)) {
        buf_add_text(buf, comma);
        add_plain(buf, key);
        buf_add_byte(buf, ':');
        if (model && json_span_string_is(key, "model"))
            json_write_string(buf, str_from(model));
        else if (!has_details && json_span_is_object(value) && json_span_string_is(key, "usage"))
            add_usage(buf, value, usage->cached_tokens);
        else
            add_plain(buf, value);
        comma = ",";
    }
    buf_add_byte(buf, '}');
}

/* True for a value that says something: some servers send an empty `error` with each answer. */
static bool is_there(struct str value) {
    static const char *const nothings[] = {"null", "false", "\"\"", "{}", "[]"};
    for (size_t i = 0; i < sizeof nothings / sizeof *nothings; i++)
        if (str_is(value, nothings[i])) return false;
    return value.at;
}

/* --- JSON as servers write it --- */

/* A text that was read. `room` has the text once it was repaired. */
struct text_value {
    struct str value; /* `at` is NULL if the text is no JSON */
    struct buf room;
    bool has_lost; /* numbers that JSON does not have: they are null in `value` */
};

static bool read_valid(struct str text, struct str *ret_value) {
    return json_span_read(text, ret_value) && json_span_is_utf8(*ret_value);
}

static void read_text(struct text_value *ret_text, struct str text, bool has_logprobs) {
    *ret_text = (struct text_value){.has_lost = false};
    buf_init(&ret_text->room, text.bytes * 3 + 64);
    if (read_valid(text, &ret_text->value)) return;
    upstream_repair(&ret_text->room, text, has_logprobs, &ret_text->has_lost);
    if (!read_valid(buf_str(&ret_text->room), &ret_text->value))
        ret_text->value = (struct str){NULL, 0};
}

static void release_text(struct text_value *text) {
    buf_release(&text->room);
}

static bool has_logprobs(enum endpoint endpoint) {
    return endpoint == ENDPOINT_CHAT || endpoint == ENDPOINT_COMPLETIONS;
}

/* --- whole answers --- */

static void PRINTF_LIKE(4, 5) fail(struct buf *buf, struct upstream_reading *reading,
                                   const char *code, const char *format, ...) {
    char message[700];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    reading->outcome = OUTCOME_TRY_AGAIN;
    reading->status = 502;
    buf_clear(buf);
    envelope_write(buf, reading->status, code, NULL, str_from(message));
}

/* An answer that is no JSON object: says what it is instead. */
static void fail_text(struct buf *buf, struct str text, const struct upstream_asked *asked,
                      struct upstream_reading *reading) {
    struct str trimmed = str_trim(text);
    bool is_json = json_span_is_object(trimmed) || str_starts_with(trimmed, STR("["));
    struct buf what;
    buf_init(&what, 1024);
    if (is_json) {
        struct error error = {0};
        json_t *tree = NULL;
        size_t room = FAULTY_MEMORY_MAX;
        enum err err = json_read_within(&tree, text, &room, &error);
        buf_add_text(&what, err == OK ? "an array" : error.text);
        json_decref(tree);
    } else {
        upstream_error_add_text(&what, text);
    }
    if (what.bytes == 0) buf_add_text(&what, "nothing");
    fail(buf, reading, "upstream_bad_answer",
         "The upstream %s answered with something that is not a JSON object: %.*s", asked->name,
         STR_ARGS(buf_str(&what)));
    buf_release(&what);
}

static bool has_error(struct str body) {
    return is_there(json_span_get(body, "error")) || is_there(json_span_get(body, "errors")) ||
           is_there(json_span_get(body, "detail")) ||
           json_span_is_string(json_span_get(body, "message"));
}

/* The object that tells why an answer has none: the body, or its first choice with an error. */
static struct str find_reason(struct str body) {
    struct json_span_iter iter;
    struct str choice, choices = json_span_get(body, "choices");
    bool inside = upstream_has_elements(choices) && json_span_enter(&iter, choices);
    if (has_error(body)) return body;
    while (inside && json_span_element(&iter, &choice))
        if (is_there(json_span_get(choice, "error"))) return choice;
    return (struct str){NULL, 0};
}

/* An answer of status 200 without what was asked for: the reason is in the body, or is what lacks.
 */
static void read_lacking(struct buf *buf, struct str body, const char *lack,
                         const struct upstream_asked *asked, struct upstream_reading *reading) {
    struct upstream_overload overload;
    struct str reason = find_reason(body);
    if (upstream_overload_find(200, reason.at ? reason : body, &overload)) {
        reading->outcome = OUTCOME_NOT_RUN;
        reading->is_overload = true;
        reading->status = overload.status;
        reading->wait_ms = overload.wait_ms;
        upstream_error_add(buf, reason.at ? reason : body, (struct str){NULL, 0}, overload.status,
                           asked->name);
    } else if (reason.at) {
        reading->outcome = OUTCOME_TRY_AGAIN;
        reading->status = 502;
        upstream_error_add(buf, reason, (struct str){NULL, 0}, 502, asked->name);
    } else {
        fail(buf, reading, "upstream_no_answer", "The upstream %s answered %s.", asked->name, lack);
    }
}

static void read_good(struct buf *buf, struct str text, const struct upstream_asked *asked,
                      struct upstream_reading *reading) {
    struct text_value read;
    struct str request;
    char lack[UPSTREAM_LACK_BYTES];
    reading->status = 200;
    read_text(&read, text, has_logprobs(asked->endpoint));
    if (!json_span_read(asked->request, &request)) request = (struct str){NULL, 0};
    if (!json_span_is_object(read.value)) {
        fail_text(buf, text, asked, reading);
    } else if (read.has_lost && !has_logprobs(asked->endpoint)) {
        /* The request would get the same numbers again. */
        fail(buf, reading, "upstream_bad_answer",
             "The upstream %s answered with NaN or Infinity, which is no number in JSON.",
             asked->name);
        reading->outcome = OUTCOME_DONE;
    } else if (!upstream_is_whole(asked->endpoint, request, read.value, lack)) {
        read_lacking(buf, read.value, lack, asked, reading);
    } else {
        reading->outcome = OUTCOME_DONE;
        read_usage(read.value, &reading->usage);
        add_body(buf, read.value, asked->model, &reading->usage);
        if (buf->overflowed) fail(buf, reading, "upstream_bad_answer", "The answer is too long.");
    }
    release_text(&read);
}

static enum outcome outcome_of(int status) {
    bool may_pass = status == 408 || status == 409 || status == 425;
    return status >= 400 && status < 500 && !may_pass ? OUTCOME_DONE : OUTCOME_TRY_AGAIN;
}

static void read_error(struct buf *buf, int status, struct str text,
                       const struct upstream_asked *asked, struct upstream_reading *reading) {
    struct upstream_overload overload;
    struct text_value read;
    read_text(&read, text, false);
    bool is_list = str_starts_with(read.value, STR("["));
    struct str body = read.value;
    if (!is_list && !json_span_is_object(body)) body = (struct str){NULL, 0};
    struct str first = is_list ? upstream_first_element(body) : body;
    reading->outcome = outcome_of(status);
    if (upstream_overload_find(status, json_span_is_object(first) ? first : (struct str){NULL, 0},
                               &overload)) {
        reading->outcome = OUTCOME_NOT_RUN;
        reading->is_overload = true;
        reading->status = overload.status;
        reading->wait_ms = overload.wait_ms;
    }
    upstream_error_add(buf, body, text, reading->status, asked->name);
    if (buf->overflowed) fail(buf, reading, "upstream_bad_answer", "The answer is too long.");
    release_text(&read);
}

void upstream_read_answer(struct buf *buf, int status, struct str body,
                          const struct upstream_asked *asked,
                          struct upstream_reading *ret_reading) {
    *ret_reading = (struct upstream_reading){.status = status, .wait_ms = -1};
    buf_clear(buf);
    if (status >= 200 && status < 300)
        read_good(buf, body, asked, ret_reading);
    else if (status >= 400 && status < 600)
        read_error(buf, status, body, asked, ret_reading);
    else
        fail(buf, ret_reading, "upstream_bad_answer", "The upstream %s answered with status %d%s.",
             asked->name, status,
             status >= 300 && status < 400 ? ", a redirect, which is not followed" : "");
    ret_reading->body = buf_str(buf);
}

/* --- events --- */

static bool has_finish(struct str choices) {
    struct json_span_iter iter;
    struct str choice;
    bool inside = json_span_enter(&iter, choices);
    while (inside && json_span_element(&iter, &choice))
        if (json_span_is_string(json_span_get(choice, "finish_reason"))) return true;
    return false;
}

static bool is_empty_array(struct str value) {
    struct json_span_iter iter;
    struct str element;
    return value.at && *value.at == '[' && json_span_enter(&iter, value) &&
           !json_span_element(&iter, &element);
}

/* Reads an event that tells an error, instead of an answer or in the middle of one. */
static enum upstream_event read_event_error(struct buf *buf, struct str value,
                                            struct upstream_stream_end *end) {
    struct upstream_overload overload;
    struct str reason = find_reason(value);
    end->is_overload = upstream_overload_find(200, reason, &overload);
    end->status = end->is_overload ? overload.status : 502;
    end->wait_ms = end->is_overload ? overload.wait_ms : -1;
    upstream_error_add(buf, reason, (struct str){NULL, 0}, end->is_overload ? overload.status : 500,
                       "upstream");
    return buf->overflowed ? UPSTREAM_EVENT_BAD : UPSTREAM_EVENT_ERROR;
}

/* True if a choice, or the event itself, tells an error. */
static bool is_error(struct str value, struct str choices) {
    struct str reason = find_reason(value);
    return is_there(json_span_get(reason, "error")) ||
           (!is_there(choices) && is_there(json_span_get(reason, "errors")));
}

enum upstream_event upstream_read_event(struct buf *buf, struct str data, const char *model,
                                        struct upstream_stream_end *end) {
    struct text_value read;
    enum upstream_event event;
    buf_clear(buf);
    if (str_is(str_trim(data), "[DONE]")) return UPSTREAM_EVENT_DONE;
    read_text(&read, data, true);
    struct str value = read.value, choices = json_span_get(value, "choices");
    if (!json_span_is_object(value)) {
        event = UPSTREAM_EVENT_BAD;
    } else if (is_error(value, choices)) {
        event = read_event_error(buf, value, end);
    } else {
        bool tells_usage = json_span_is_object(json_span_get(value, "usage"));
        read_usage(value, &end->usage);
        if (upstream_has_elements(choices)) end->has_choice = true;
        if (upstream_has_elements(choices) && has_finish(choices)) end->is_finished = true;
        add_body(buf, value, model, &end->usage);
        event =
            tells_usage && is_empty_array(choices) ? UPSTREAM_EVENT_USAGE : UPSTREAM_EVENT_CHUNK;
        if (buf->overflowed) event = UPSTREAM_EVENT_BAD;
    }
    release_text(&read);
    return event;
}
