/* SPDX-License-Identifier: Apache-2.0 */
#include "table/result_parts.h"

#include "json/span.h"

#include <inttypes.h>

static const struct str nothing = {NULL, 0};

/* True for a value that says nothing: it is absent, null, or an empty text, list or object. */
static bool is_void(struct str value) {
    return !value.at || str_is(value, "null") || str_is(value, "\"\"") || str_is(value, "[]") ||
           str_is(value, "{}");
}

/* The member of an object; nothing if it is absent or null. */
static struct str member(struct str object, const char *name) {
    struct str value = json_span_get(object, name);
    return str_is(value, "null") ? nothing : value;
}

static bool has_any(struct str object, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!is_void(json_span_get(object, names[i]))) return true;
    return false;
}

/* --- choices --- */

/* The element of a list with the lowest `index`, or place where it has none; *ret_count is the
 * length of the list. */
static struct str first_of(struct str list, size_t *ret_count) {
    struct json_span_iter iter;
    struct str value, first = nothing;
    uint64_t lowest = UINT64_MAX;
    *ret_count = 0;
    if (!list.at || list.at[0] != '[' || !json_span_enter(&iter, list)) return nothing;
    while (json_span_element(&iter, &value)) {
        uint64_t index = *ret_count;
        (void)str_to_u64(json_span_get(value, "index"), &index);
        if (!first.at || index < lowest) {
            first = value;
            lowest = index;
        }
        ++*ret_count;
    }
    return first;
}

/* The answer of a chat or of a completion, and whether it is all that the choice says. */
static struct str answer_of_choice(struct str choice, bool *ret_is_whole) {
    static const char *const further[] = {
        "reasoning_content", "reasoning", "thinking", "audio", "images", "annotations"};
    struct str message = member(choice, "message"), found = nothing;
    const struct str texts[] = {member(message, "content"), member(message, "tool_calls"),
                                member(message, "refusal"), member(message, "function_call"),
                                member(choice, "text")};
    size_t said = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (is_void(texts[i])) continue;
        if (said++ == 0) found = texts[i];
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts && !found.at; i++) found = texts[i];
    *ret_is_whole = said <= 1 && is_void(json_span_get(choice, "logprobs")) &&
                    !has_any(message, further, sizeof further / sizeof *further);
    return found;
}

/* The answer of another endpoint: an embedding, decisions, or the whole list of data. */
static struct str answer_of_body(struct str body, bool *ret_is_whole) {
    size_t count;
    struct str data = member(body, "data");
    struct str found = member(first_of(data, &count), "embedding");
    if (found.at) *ret_is_whole = count == 1;
    if (!found.at) found = member(body, "answers");
    return found.at ? found : data;
}

/* --- errors --- */

static bool is_good(const struct result_parts *parts) {
    return parts->status == 0 || parts->status / 100 == 2;
}

/* The body of an answer that an upstream gave in another form lies in the body's `answer`. */
static struct str answered_body(struct str body) {
    struct str inner = member(body, "answer");
    return json_span_is_object(inner) && !member(body, "choices").at ? inner : body;
}

bool result_parts_read(struct str line, struct result_parts *ret_parts) {
    struct result_parts parts = {.is_whole = true};
    size_t count;
    if (!json_span_is_utf8(line) || !json_span_read(line, &line) || !json_span_is_object(line))
        return false;
    struct str response = member(line, "response"), status = member(response, "status_code");
    if (json_span_is_string(status)) status = (struct str){status.at + 1, status.bytes - 2};
    (void)str_to_u64(status, &parts.status);
    parts.has_response = json_span_is_object(response);
    parts.body = member(response, "body");
    struct str body = answered_body(parts.body);
    struct str choice = first_of(member(body, "choices"), &count);
    if (choice.at) {
        parts.answer = answer_of_choice(choice, &parts.is_whole);
        parts.finish_reason = member(choice, "finish_reason");
    } else {
        parts.answer = answer_of_body(body, &parts.is_whole);
    }
    if (count > 1) parts.is_whole = false;
    parts.usage = member(body, "usage");
    parts.error = member(line, "error");
    if (is_void(parts.error)) parts.error = member(parts.body, "error");
    if (is_void(parts.error)) parts.error = nothing;
    if (!parts.answer.at && !parts.error.at) parts.is_whole = false;
    *ret_parts = parts;
    return true;
}

void result_parts_write_text(struct buf *out, struct str raw) {
    if (json_span_is_string(raw))
        json_span_decode(out, raw);
    else
        buf_add_str(out, raw);
}

/* Appends an error in any form that servers give it. */
static void write_raw_error(struct buf *out, struct str error) {
    if (json_span_is_object(member(error, "error"))) error = member(error, "error");
    struct str code = member(error, "code"), message = member(error, "message");
    if (is_void(code)) code = member(error, "type");
    if (is_void(message)) message = member(error, "detail");
    if (is_void(message)) message = member(error, "error");
    if (is_void(message)) {
        result_parts_write_text(out, error);
        return;
    }
    if (!is_void(code)) {
        result_parts_write_text(out, code);
        buf_add_text(out, ": ");
    }
    result_parts_write_text(out, message);
}

/* True for an empty text whose end was no usual one. */
static bool was_cut_to_nothing(const struct result_parts *parts) {
    return str_is(parts->answer, "\"\"") && parts->finish_reason.at &&
           !json_span_string_is(parts->finish_reason, "stop");
}

static void write_no_answer(struct buf *out, const struct result_parts *parts) {
    if (!is_good(parts)) {
        buf_printf(out, "status_%" PRIu64, parts->status);
        if (!parts->answer.at && parts->body.at) {
            buf_add_text(out, ": ");
            write_raw_error(out, parts->body);
        }
        return;
    }
    if (parts->answer.at && !was_cut_to_nothing(parts)) return;
    buf_add_text(out, "no_answer: ");
    if (!parts->has_response)
        buf_add_text(out, "The result has neither a response nor an error");
    else if (!json_span_is_object(parts->body))
        buf_add_text(out, "The response has no body that is an object");
    else
        buf_add_text(out, "The response has no text and no call");
    if (parts->finish_reason.at) {
        buf_add_text(out, "; its finish_reason is ");
        result_parts_write_text(out, parts->finish_reason);
    }
    buf_add_byte(out, '.');
}

void result_parts_write_error(struct buf *out, const struct result_parts *parts) {
    if (parts->error.at)
        write_raw_error(out, parts->error);
    else
        write_no_answer(out, parts);
}
