/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/shape.h"

#include "answer/answer_text.h"
#include "grammar/asked_names.h"
#include "grammar/asked_shape.h"
#include "grammar/shape_match.h"
#include "json/envelope.h"
#include "json/json.h"
#include "json/span.h"
#include "workers/upstream/calls.h"

#include <stdio.h>

#define FIELDS_MEMORY_MAX ((size_t)64 << 20) /* limit for the fields' tree */
#define MISMATCH_STATUS 502 /* the upstream broke its word, as a bad gateway does */

/* Appends the members that may ask for a shape, as an object; nothing if there are none. */
static void add_fields(struct buf *buf, struct str request) {
    struct json_span_iter iter;
    struct str body, key, value;
    bool inside = json_span_read(request, &body) && json_span_enter(&iter, body);
    while (inside && json_span_member(&iter, &key, &value)) {
        if (!asked_name_is_about(key, value) && !json_span_string_is(key, "tools")) continue;
        buf_add_byte(buf, buf->bytes ? ',' : '{');
        buf_add_str(buf, key);
        buf_add_byte(buf, ':');
        buf_add_str(buf, value);
    }
    if (buf->bytes > 0) buf_add_byte(buf, '}');
}

bool upstream_shape_check(struct str request, struct refusal *ret_refusal) {
    struct asked_shape shape = {.source = NULL};
    struct error error;
    struct buf fields;
    json_t *body = NULL;
    size_t memory = FIELDS_MEMORY_MAX;
    bool is_good = true;
    buf_init(&fields, BUF_UNLIMITED);
    add_fields(&fields, request);
    if (fields.bytes > 0) {
        is_good = json_read_within(&body, buf_str(&fields), &memory, &error) == OK
                      ? asked_shape_read(body, &shape, ret_refusal)
                      : refuse(ret_refusal, "invalid_value", NULL,
                               "Invalid body: its constraints cannot be read: %s.", error.text);
    }
    if (is_good) json_decref(shape.source);
    json_decref(body);
    buf_release(&fields);
    return is_good;
}

/* Reads the shape; false if it cannot be read, which upstream_shape_check has refused. */
static bool read_shape(struct str fields, struct asked_shape *ret_shape) {
    struct refusal refusal;
    struct error error;
    json_t *body;
    size_t memory = FIELDS_MEMORY_MAX;
    if (json_read_within(&body, fields, &memory, &error) != OK) return false;
    bool is_read = asked_shape_read(body, ret_shape, &refusal);
    json_decref(body);
    return is_read;
}

/* One choice of a chat or of a text completion. */
static enum shape_end look_at_choice(const struct asked_shape *shape, struct str choice,
                                     struct buf *scratch, uint32_t *fuel) {
    struct answer_text found;
    answer_text_read(&found, choice);
    if (json_span_string_is(found.finish_reason, "length")) return SHAPE_TRUNCATED;
    if (found.calls.at || found.kind == ANSWER_IS_REFUSAL) return SHAPE_UNCHECKED;
    if (!json_span_is_string(found.raw)) return SHAPE_MISMATCHED;
    buf_clear(scratch);
    answer_text_add(scratch, &found);
    if (scratch->overflowed) return SHAPE_UNCHECKED;
    switch (shape_match_text(shape->kind, shape->source, buf_str(scratch), fuel)) {
    case SHAPE_MATCH_NO: return SHAPE_MISMATCHED;
    case SHAPE_MATCH_UNKNOWN: return SHAPE_UNCHECKED;
    case SHAPE_MATCH_YES: break;
    }
    return SHAPE_VALID;
}

static enum shape_end look_at_choices(const struct asked_shape *shape, struct str answer,
                                      struct buf *scratch, uint32_t *fuel) {
    struct json_span_iter iter;
    struct str choice, choices = json_span_get(answer, "choices");
    bool seen[SHAPE_END_COUNT] = {false};
    bool inside = choices.bytes > 0 && *choices.at == '[' && json_span_enter(&iter, choices);
    while (inside && json_span_element(&iter, &choice))
        seen[look_at_choice(shape, choice, scratch, fuel)] = true;
    if (seen[SHAPE_MISMATCHED]) return SHAPE_MISMATCHED;
    if (seen[SHAPE_TRUNCATED]) return SHAPE_TRUNCATED;
    return seen[SHAPE_VALID] && !seen[SHAPE_UNCHECKED] ? SHAPE_VALID : SHAPE_UNCHECKED;
}

enum shape_end upstream_shape_look(struct str request, struct str answer, const char **ret_param) {
    struct asked_shape shape = {.source = NULL};
    struct buf scratch;
    enum shape_end end = SHAPE_NONE;
    uint32_t fuel = SHAPE_MATCH_FUEL;
    buf_init(&scratch, BUF_UNLIMITED);
    add_fields(&scratch, request);
    if (scratch.bytes > 0 && !read_shape(buf_str(&scratch), &shape)) end = SHAPE_UNCHECKED;
    if (end == SHAPE_NONE && shape.source) {
        end = look_at_choices(&shape, answer, &scratch, &fuel);
        *ret_param = shape.param;
        json_decref(shape.source);
    }
    buf_release(&scratch);
    if (end == SHAPE_MISMATCHED) return end;
    bool is_other = upstream_calls_look(request, answer, &fuel, ret_param) == SHAPE_MISMATCHED;
    return is_other ? SHAPE_MISMATCHED : end;
}

void upstream_shape_write_error(struct buf *buf, struct str answer, const char *param,
                                const char *name) {
    char message[300];
    snprintf(message, sizeof message,
             "The answer of the upstream %.63s does not match what '%.90s' asks for.", name, param);
    envelope_write(buf, MISMATCH_STATUS, "schema_mismatch", param, str_from(message));
    buf_truncate(buf, buf->bytes - 1); /* the brace */
    buf_add_text(buf, ",\"answer\":");
    buf_add_str(buf, answer);
    buf_add_byte(buf, '}');
}
