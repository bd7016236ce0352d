/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of a whole answer and its stream: pairs.json has answers of a chat, each is cut into chunks
 * in several ways, and what the events of each dialect say, joined, is what its body says. */
#include "dialects/messages.h"
#include "dialects/ollama.h"
#include "dialects/responses.h"
#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAIRS_LEAST 40

static const struct dialect_end the_end = {
    .usage = {.input_tokens = 26, .cached_tokens = 16, .output_tokens = 12},
    .times = {.total_ns = 4, .prefill_ns = 3, .decode_ns = 1}};

/* One chat answer on its way through one dialect. */
struct trial {
    struct dialect_call *call;
    struct buf events;
    size_t width; /* characters of a chunk */
};

static void give(struct trial *trial, const char *member, json_t *value, const char *finish) {
    struct piece piece;
    json_t *delta = member ? json_pack("{s:o}", member, value) : json_object();
    json_t *chunk = json_pack("{s:s,s:i,s:[{s:i,s:o,s:s?}]}", "id", "chatcmpl-9", "created", 7,
                              "choices", "index", 0, "delta", delta, "finish_reason", finish);
    char *text = json_dumps(chunk, JSON_COMPACT);
    assert_true(piece_read(str_from(text), &piece));
    trial->call->dialect->take(trial->call, &piece, 0, &trial->events);
    json_decref(chunk);
    free(text);
}

/* The next characters of a text; *at is moved behind them. */
static json_t *next_part(struct trial *trial, const char *text, size_t *at) {
    size_t from = *at, count = 0;
    while (text[*at]) {
        bool begins = ((unsigned char)text[*at] & 0xC0) != 0x80;
        if (begins && count++ == trial->width) break;
        ++*at;
    }
    return json_stringn(text + from, *at - from);
}

static void give_text(struct trial *trial, const json_t *message, const char *member) {
    const char *text = json_string_value(json_object_get(message, member));
    for (size_t at = 0; text && text[at];) give(trial, member, next_part(trial, text, &at), NULL);
}

static void give_calls(struct trial *trial, const json_t *calls) {
    const json_t *call;
    size_t index;
    json_array_foreach(calls, index, call) {
        const json_t *function = json_object_get(call, "function");
        const char *arguments = json_string_value(json_object_get(function, "arguments"));
        json_t *begun = json_pack("[{s:i,s:O,s:{s:O,s:s}}]", "index", (int)index, "id",
                                  json_object_get(call, "id"), "function", "name",
                                  json_object_get(function, "name"), "arguments", "");
        give(trial, "tool_calls", begun, NULL);
        for (size_t at = 0; arguments[at];) {
            json_t *part = next_part(trial, arguments, &at);
            give(trial, "tool_calls",
                 json_pack("[{s:i,s:{s:o}}]", "index", (int)index, "function", "arguments", part),
                 NULL);
        }
    }
}

/* The events of a stream as a list of objects. */
static json_t *stream_of(struct trial *trial, const json_t *choice) {
    const json_t *message = json_object_get(choice, "message");
    json_t *list = json_array();
    give_text(trial, message, "reasoning_content");
    give_text(trial, message, "content");
    give_text(trial, message, "refusal");
    give_calls(trial, json_object_get(message, "tool_calls"));
    give(trial, NULL, NULL, json_string_value(json_object_get(choice, "finish_reason")));
    trial->call->dialect->end(trial->call, &the_end, &trial->events);
    struct str left = buf_str(&trial->events);
    while (left.bytes > 0) {
        size_t end = str_find_byte(left, '\n', 0);
        struct str line = {left.at, end};
        left = str_skip(left, end + 1);
        if (str_starts_with(line, STR("data: "))) line = str_skip(line, 6);
        if (line.bytes == 0 || *line.at != '{') continue;
        json_t *event = json_loadb(line.at, line.bytes, 0, NULL);
        assert_non_null(event);
        json_array_append_new(list, event);
    }
    return list;
}

static void append_text(json_t *object, const char *name, const json_t *more) {
    char text[4096];
    const char *old = json_string_value(json_object_get(object, name));
    snprintf(text, sizeof text, "%s%s", old ? old : "", json_string_value(more));
    json_object_set_new(object, name, json_string(text));
}

/* --- joining --- */

static json_t *join_ollama(const json_t *events) {
    json_t *whole = json_object(), *message = json_object(), *event;
    json_t *calls = json_array();
    size_t index;
    json_object_set_new(message, "content", json_string(""));
    json_array_foreach(events, index, event) {
        const json_t *part = json_object_get(event, "message");
        append_text(message, "content", json_object_get(part, "content"));
        if (json_object_get(part, "thinking"))
            append_text(message, "thinking", json_object_get(part, "thinking"));
        json_array_extend(calls, json_object_get(part, "tool_calls"));
        json_object_update(whole, event);
    }
    json_object_set_new(message, "role", json_string("assistant"));
    if (json_array_size(calls) > 0) json_object_set(message, "tool_calls", calls);
    json_decref(calls);
    json_object_set_new(whole, "message", message);
    return whole;
}

static void join_block(json_t *block, const json_t *delta) {
    static const char *const names[] = {"text", "thinking", "signature"};
    for (size_t i = 0; i < 3; i++)
        if (json_object_get(delta, names[i]))
            append_text(block, names[i], json_object_get(delta, names[i]));
    const char *input = json_string_value(json_object_get(delta, "partial_json"));
    if (input) json_object_set_new(block, "input", json_loads(input, 0, NULL));
}

static json_t *join_messages(const json_t *events) {
    json_t *whole = NULL, *event, *content = json_array();
    size_t index;
    json_array_foreach(events, index, event) {
        struct str type = json_member_str(event, "type");
        json_t *delta = json_object_get(event, "delta");
        size_t at = (size_t)json_integer_value(json_object_get(event, "index"));
        if (str_is(type, "message_start"))
            whole = json_deep_copy(json_object_get(event, "message"));
        if (str_is(type, "content_block_start"))
            json_array_append(content, json_object_get(event, "content_block"));
        if (str_is(type, "content_block_delta")) join_block(json_array_get(content, at), delta);
        if (!str_is(type, "message_delta")) continue;
        json_object_update(whole, delta);
        json_object_set(whole, "usage", json_object_get(event, "usage"));
    }
    if (json_array_size(content) == 0)
        json_array_append_new(content, json_pack("{s:s,s:s}", "type", "text", "text", ""));
    json_object_set_new(whole, "content", content);
    return whole;
}

static void join_item(json_t *item, const json_t *event, struct str type) {
    json_t *content = json_object_get(item, "content"), *part = json_array_get(content, 0);
    const json_t *delta = json_object_get(event, "delta");
    if (str_is(type, "response.content_part.added"))
        json_array_append(content, json_object_get(event, "part"));
    else if (str_is(type, "response.function_call_arguments.delta"))
        append_text(item, "arguments", delta);
    else if (delta)
        append_text(part, json_object_get(part, "refusal") ? "refusal" : "text", delta);
}

static json_t *join_responses(const json_t *events) {
    json_t *event, *items = json_array(), *whole = NULL;
    size_t index;
    json_array_foreach(events, index, event) {
        struct str type = json_member_str(event, "type");
        size_t at = (size_t)json_integer_value(json_object_get(event, "output_index"));
        assert_int_equal(json_integer_value(json_object_get(event, "sequence_number")), index);
        if (str_is(type, "response.output_item.added")) {
            assert_int_equal(json_array_size(items), at);
            json_array_append_new(items, json_deep_copy(json_object_get(event, "item")));
        } else if (str_is(type, "response.output_item.done")) {
            json_t *item = json_array_get(items, at), *done = json_object_get(event, "item");
            json_object_set(item, "status", json_object_get(done, "status"));
            assert_true(json_equal(item, done));
        } else if (json_object_get(event, "response")) {
            whole = json_object_get(event, "response");
        } else {
            join_item(json_array_get(items, at), event, type);
        }
    }
    whole = json_deep_copy(whole);
    assert_true(json_equal(json_object_get(whole, "output"), items));
    json_decref(items);
    return whole;
}

/* --- the pairs --- */

static const struct {
    const struct dialect *dialect;
    const char *request;
    json_t *(*join)(const json_t *events);
} dialects[] = {
    {&ollama_chat, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}",
     join_ollama},
    {&messages_create,
     "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]}",
     join_messages},
    {&responses_create, "{\"model\":\"m\",\"input\":\"q\"}", join_responses}};

static json_t *body_of(size_t which, const json_t *choice) {
    struct refusal refusal;
    struct buf out;
    struct dialect_call *call =
        dialect_read(dialects[which].dialect, str_from(dialects[which].request), &refusal);
    json_t *inner =
        json_pack("{s:s,s:i,s:[O]}", "id", "chatcmpl-9", "created", 7, "choices", choice);
    char *text = json_dumps(inner, JSON_COMPACT);
    buf_init(&out, BUF_UNLIMITED);
    assert_non_null(call);
    assert_true(call->dialect->body(call, str_from(text), &the_end, &out));
    json_t *body = json_loadb(out.at, out.bytes, 0, NULL);
    buf_release(&out);
    json_decref(inner);
    free(text);
    dialect_call_free(call);
    return body;
}

static void check_pair(size_t which, const json_t *item, size_t width) {
    struct refusal refusal;
    const json_t *choice = json_object_get(item, "choice");
    struct trial trial = {.width = width};
    trial.call = dialect_read(dialects[which].dialect, str_from(dialects[which].request), &refusal);
    assert_non_null(trial.call);
    buf_init(&trial.events, BUF_UNLIMITED);
    json_t *events = stream_of(&trial, choice), *joined = dialects[which].join(events);
    json_t *body = body_of(which, choice);
    if (!json_equal(joined, body)) {
        char *got = json_dumps(joined, JSON_SORT_KEYS), *want = json_dumps(body, JSON_SORT_KEYS);
        fail_msg("%s, dialect %zu: the stream says %s, the body %s",
                 json_string_value(json_object_get(item, "name")), which, got, want);
    }
    json_decref(events);
    json_decref(joined);
    json_decref(body);
    buf_release(&trial.events);
    dialect_call_free(trial.call);
}

static void a_stream_joined_is_the_body(void **state) {
    char path[4096];
    (void)state;
    snprintf(path, sizeof path, "%s/tests/unit/protocol/dialects/pairs.json",
             getenv("QUERN_SOURCE"));
    json_t *pairs = json_load_file(path, 0, NULL), *item;
    size_t index;
    assert_true(json_array_size(pairs) >= PAIRS_LEAST);
    json_array_foreach(pairs, index,
                       item) for (size_t which = 0; which < sizeof dialects / sizeof *dialects;
                                  which++) for (size_t width = 1; width <= 64; width *= 4)
        check_pair(which, item, width);
    json_decref(pairs);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_stream_joined_is_the_body)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
