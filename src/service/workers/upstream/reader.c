/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/reader.h"

#include "base/least.h"
#include "json/envelope.h"
#include "json/json.h"
#include "json/span.h"
#include "workers/upstream/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
    found.cached_tokens = least_u64(read_cached(body, usage), found.input_tokens);
    found.reasoning_tokens =
        least_u64(read_count(json_span_get(usage, "completion_tokens_details"), "reasoning_tokens"),
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

static bool is_there(struct str value) {
    return value.at && !str_is(value, "null");
}

static bool read_object(struct str text, struct str *ret_value) {
    return json_span_read(text, ret_value) && json_span_is_object(*ret_value) &&
           json_span_is_utf8(*ret_value);
}

static void fail(struct buf *buf, struct upstream_reading *reading, const char *code,
                 const char *message) {
    reading->outcome = OUTCOME_TRY_AGAIN;
    reading->status = 502;
    buf_clear(buf);
    envelope_write(buf, reading->status, code, NULL, str_from(message));
}

/* Some servers answer 200 and put the error into the body. */
static bool is_error_in_disguise(struct str body) {
    return is_there(json_span_get(body, "error")) && !is_there(json_span_get(body, "choices")) &&
           !is_there(json_span_get(body, "data"));
}

static void read_good(struct buf *buf, struct str body, const char *model, const char *name,
                      struct upstream_reading *reading) {
    char message[200];
    struct str value;
    reading->status = 200;
    if (!read_object(body, &value)) {
        snprintf(message, sizeof message,
                 "The upstream %s answered with something that is not a JSON object.", name);
        fail(buf, reading, "upstream_bad_answer", message);
        return;
    }
    if (is_error_in_disguise(value)) {
        reading->outcome = OUTCOME_TRY_AGAIN;
        reading->status = 502;
        upstream_error_add(buf, value, 502, name);
        return;
    }
    reading->outcome = OUTCOME_DONE;
    read_usage(value, &reading->usage);
    add_body(buf, value, model, &reading->usage);
    if (buf->overflowed) fail(buf, reading, "upstream_bad_answer", "The answer is too long.");
}

static enum outcome outcome_of(int status) {
    if (status == 429 || status == 503) return OUTCOME_NOT_RUN;
    bool may_pass = status == 408 || status == 409 || status == 425;
    return status >= 400 && status < 500 && !may_pass ? OUTCOME_DONE : OUTCOME_TRY_AGAIN;
}

void upstream_read_answer(struct buf *buf, int status, struct str body, const char *model,
                          const char *name, struct upstream_reading *ret_reading) {
    struct str value;
    char message[200];
    *ret_reading = (struct upstream_reading){.status = status};
    buf_clear(buf);
    if (status >= 200 && status < 300) {
        read_good(buf, body, model, name, ret_reading);
    } else if (status >= 400 && status < 600) {
        ret_reading->outcome = outcome_of(status);
        upstream_error_add(buf, read_object(body, &value) ? value : (struct str){NULL, 0}, status,
                           name);
        if (buf->overflowed)
            fail(buf, ret_reading, "upstream_bad_answer", "The answer is too long.");
    } else {
        snprintf(message, sizeof message, "The upstream %s answered with status %d%s.", name,
                 status,
                 status >= 300 && status < 400 ? ", a redirect, which is not followed" : "");
        fail(buf, ret_reading, "upstream_bad_answer", message);
    }
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

enum upstream_event upstream_read_event(struct buf *buf, struct str data, const char *model,
                                        struct usage *usage, bool *is_finished) {
    struct str value;
    buf_clear(buf);
    if (str_is(str_trim(data), "[DONE]")) return UPSTREAM_EVENT_DONE;
    if (!read_object(data, &value)) return UPSTREAM_EVENT_BAD;
    struct str choices = json_span_get(value, "choices");
    if (is_there(json_span_get(value, "error"))) {
        upstream_error_add(buf, value, 500, "upstream");
        return buf->overflowed ? UPSTREAM_EVENT_BAD : UPSTREAM_EVENT_ERROR;
    }
    bool tells_usage = json_span_is_object(json_span_get(value, "usage"));
    read_usage(value, usage);
    if (choices.at && *choices.at == '[' && has_finish(choices)) *is_finished = true;
    add_body(buf, value, model, usage);
    if (buf->overflowed) return UPSTREAM_EVENT_BAD;
    return tells_usage && is_empty_array(choices) ? UPSTREAM_EVENT_USAGE : UPSTREAM_EVENT_CHUNK;
}
