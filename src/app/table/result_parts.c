/* SPDX-License-Identifier: Apache-2.0 */
#include "table/result_parts.h"

#include "answer/answer_text.h"
#include "answer/embedding.h"
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

/* The answer of a chat or of a completion, and whether it is all that the choice says. */
static struct str answer_of_choice(const struct answer_text *found, bool *ret_is_whole) {
    static const char *const further[] = {
        "reasoning_content", "reasoning", "thinking", "audio", "images", "annotations"};
    *ret_is_whole = found->count <= 1 && is_void(found->logprobs) &&
                    !has_any(found->message, further, sizeof further / sizeof *further);
    return found->kind == ANSWER_IS_CALL ? found->calls : found->raw;
}

/* The answer of another endpoint: an embedding, decisions, or the whole list of data. */
static struct str answer_of_body(struct str body, bool *ret_is_whole) {
    uint64_t count;
    struct str data = member(body, "data");
    struct str found = embedding_first(data, &count);
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
    struct answer_text found;
    uint64_t count;
    if (!json_span_is_utf8(line) || !json_span_read(line, &line) || !json_span_is_object(line))
        return false;
    struct str response = member(line, "response"), status = member(response, "status_code");
    if (json_span_is_string(status)) status = (struct str){status.at + 1, status.bytes - 2};
    (void)str_to_u64(status, &parts.status);
    parts.has_response = json_span_is_object(response);
    parts.body = member(response, "body");
    struct str body = answered_body(parts.body);
    if (answer_text_of_body(&found, body, &count)) {
        parts.answer = answer_of_choice(&found, &parts.is_whole);
        parts.is_refusal = found.kind == ANSWER_IS_REFUSAL;
        parts.finish_reason = found.finish_reason;
    } else {
        parts.answer = answer_of_body(body, &parts.is_whole);
    }
    if (count > 1) parts.is_whole = false;
    answer_usage_read(&parts.usage, member(body, "usage"));
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
