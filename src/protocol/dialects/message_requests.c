/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/message_requests.h"

#include "dialects/members.h"
#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Memory of the tree that finds the fault of a request which is not JSON. */
#define FAULTY_TREE_BYTES_MAX ((size_t)16 << 20)
#define WHERE_BYTES 64

/* What comes next. */
enum place {
    BEFORE_BODY,
    BEFORE_KEY, /* a member of the body */
    IN_KEY,
    BEFORE_COLON,
    BEFORE_VALUE,
    IN_VALUE, /* a member that this reader passes over */
    AFTER_VALUE,
    BEFORE_REQUEST,
    IN_REQUEST,
    AFTER_REQUEST,
    AFTER_BODY,
};

void message_requests_init(struct message_requests *reader,
                           bool (*take)(void *context, const struct message_request *request,
                                        struct refusal *ret_refusal),
                           void *context) {
    *reader = (struct message_requests){.take = take, .context = context, .place = BEFORE_BODY};
    buf_init(&reader->held, MESSAGE_REQUEST_BYTES_MAX);
}

void message_requests_release(struct message_requests *reader) {
    buf_release(&reader->held);
}

/* --- what is wrong --- */

/* Where the reader stands, for a sentence. */
static const char *where(const struct message_requests *reader, char text[WHERE_BYTES]) {
    bool is_request = reader->place >= BEFORE_REQUEST && reader->place <= AFTER_REQUEST;
    uint64_t index = reader->count - (reader->place == AFTER_REQUEST ? 1 : 0);
    if (is_request)
        snprintf(text, WHERE_BYTES, "requests.%" PRIu64, index);
    else
        snprintf(text, WHERE_BYTES, "body");
    return text;
}

static bool refuse_byte(const struct message_requests *reader, char byte, const char *expected,
                        struct refusal *refusal) {
    char text[WHERE_BYTES], shown[8];
    unsigned char code = (unsigned char)byte;
    if (code > ' ' && code < 0x7F)
        snprintf(shown, sizeof shown, "'%c'", byte);
    else
        snprintf(shown, sizeof shown, "0x%02X", code);
    const char *place = where(reader, text);
    return refuse(refusal, "invalid_json", place,
                  "%s: the body is not valid JSON at byte %" PRIu64 ": expected %s, got %s", place,
                  reader->at + 1, expected, shown);
}

/* The held text is no JSON: says why, and where it begins. */
static bool refuse_held(const struct message_requests *reader, struct refusal *refusal) {
    static const struct str known = {"not valid JSON: ", 16};
    char text[WHERE_BYTES];
    struct error error = {0};
    json_t *tree = NULL;
    size_t room = FAULTY_TREE_BYTES_MAX;
    enum err err = json_read_within(&tree, buf_str(&reader->held), &room, &error);
    json_decref(tree);
    struct str why = str_from(err == ERR_INVALID ? error.text : "");
    if (str_starts_with(why, known)) why = str_skip(why, known.bytes);
    const char *place = where(reader, text);
    return refuse(refusal, "invalid_json", place,
                  "%s: not valid JSON%s%.*s, counted from byte %" PRIu64 " of the body", place,
                  why.bytes > 0 ? ": " : "", STR_ARGS(why), reader->held_at + 1);
}

static bool refuse_length(const struct message_requests *reader, struct refusal *refusal) {
    char text[WHERE_BYTES];
    const char *place = where(reader, text);
    return refuse(refusal, "invalid_value", place,
                  "%s: it begins at byte %" PRIu64 " of the body and has more than %zu bytes, or "
                  "its end is missing",
                  place, reader->held_at + 1, MESSAGE_REQUEST_BYTES_MAX);
}

/* --- one request --- */

static bool is_id_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static bool read_id(struct message_request *request, struct str raw, struct refusal *refusal) {
    char param[WHERE_BYTES];
    snprintf(param, sizeof param, "requests.%" PRIu64 ".custom_id", request->index);
    if (!raw.at)
        return refuse(refusal, "missing_required_parameter", param, "%s: Field required", param);
    if (!json_span_is_string(raw))
        return refuse(refusal, "invalid_type", param, "%s: expected a string, got %s", param,
                      member_kind(raw));
    struct buf scratch;
    buf_init(&scratch, BUF_UNLIMITED);
    struct str id = json_span_text(raw, &scratch);
    bool is_good = id.bytes >= 1 && id.bytes <= MESSAGE_CUSTOM_ID_BYTES_MAX;
    for (size_t i = 0; i < id.bytes && is_good; i++) is_good = is_id_byte(id.at[i]);
    if (is_good) memcpy(request->custom_id, id.at, id.bytes);
    if (is_good) request->custom_id[id.bytes] = '\0';
    buf_release(&scratch);
    struct str shown = {raw.at, raw.bytes < 90 ? raw.bytes : 90};
    return is_good || refuse(refusal, "invalid_value", param,
                             "%s: String should match pattern '^[a-zA-Z0-9_-]{1,64}$', got %.*s%s",
                             param, STR_ARGS(shown), shown.bytes < raw.bytes ? "…" : "");
}

static bool read_params(struct message_request *request, struct str params,
                        struct refusal *refusal) {
    char param[WHERE_BYTES];
    snprintf(param, sizeof param, "requests.%" PRIu64 ".params", request->index);
    if (!params.at)
        return refuse(refusal, "missing_required_parameter", param, "%s: Field required", param);
    if (!json_span_is_object(params))
        return refuse(refusal, "invalid_type", param, "%s: expected an object, got %s", param,
                      member_kind(params));
    request->params = params;
    return true;
}

/* A name that is given twice is told with the request that has it. */
static bool find_members(const struct message_requests *reader, struct str object,
                         const struct member *places, size_t count, struct refusal *refusal) {
    char text[WHERE_BYTES], param[REFUSAL_PARAM_BYTES];
    if (members_read(object, places, count, refusal)) return true;
    const char *place = where(reader, text);
    snprintf(param, sizeof param, "%s.%.20s", place, refusal->param);
    return refuse(refusal, "invalid_value", param,
                  "%s: the key is given twice: it is not clear "
                  "which one counts",
                  param);
}

static bool hand_on(struct message_requests *reader, struct refusal *refusal) {
    struct message_request request = {.index = reader->count};
    struct str object, id, params;
    const struct member places[] = {{"custom_id", &id}, {"params", &params}};
    char text[WHERE_BYTES];
    struct str held = buf_str(&reader->held);
    const char *place = where(reader, text);
    if (!json_span_is_utf8(held) || !json_span_read(held, &object))
        return refuse_held(reader, refusal);
    if (!json_span_is_object(object))
        return refuse(refusal, "invalid_type", place, "%s: expected an object, got %s", place,
                      str_is(object, "null") ? "null" : member_kind(object));
    if (reader->count == MESSAGE_REQUESTS_MAX)
        return refuse(refusal, "invalid_value", "requests",
                      "requests: at most %u requests are allowed in a batch", MESSAGE_REQUESTS_MAX);
    if (!find_members(reader, object, places, 2, refusal) || !read_id(&request, id, refusal) ||
        !read_params(&request, params, refusal) ||
        !reader->take(reader->context, &request, refusal))
        return false;
    reader->count++;
    return true;
}

/* --- the body --- */

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void begin_held(struct message_requests *reader, enum place place) {
    buf_clear(&reader->held);
    reader->held_at = reader->at;
    reader->place = place;
    reader->depth = 0;
    reader->in_string = reader->is_escaped = false;
}

/* Steps over the bytes of a string up to its end, its quote included. */
static size_t pass_string(struct message_requests *reader, struct str bytes, size_t at) {
    for (; at < bytes.bytes; at++) {
        if (reader->is_escaped) {
            reader->is_escaped = false;
        } else if (bytes.at[at] == '\\') {
            reader->is_escaped = true;
        } else if (bytes.at[at] == '"') {
            reader->in_string = false;
            return at + 1;
        }
    }
    return at;
}

/* The end of the held value in `bytes`; SIZE_MAX if it goes on behind them. A number or a word ends
 * before the byte that cannot be part of it. */
static size_t find_end(struct message_requests *reader, struct str bytes) {
    size_t at = 0;
    while (at < bytes.bytes) {
        if (reader->in_string) {
            at = pass_string(reader, bytes, at);
            if (!reader->in_string && reader->depth == 0) return at;
            continue;
        }
        char c = bytes.at[at];
        bool is_end = c == '}' || c == ']';
        if (reader->depth == 0 && reader->at + at > reader->held_at &&
            (is_end || c == ',' || is_space(c)))
            return at;
        at++;
        if (c == '"') reader->in_string = true;
        if (c == '{' || c == '[') reader->depth++;
        if (is_end && reader->depth > 0 && --reader->depth == 0) return at;
    }
    return SIZE_MAX;
}

/* The held key, value or request is whole. */
static bool end_held(struct message_requests *reader, struct refusal *refusal) {
    struct str held = buf_str(&reader->held);
    if (reader->place == IN_REQUEST) {
        if (!hand_on(reader, refusal)) return false;
        reader->place = AFTER_REQUEST;
        return true;
    }
    if (!json_span_is_utf8(held) || !json_span_read(held, NULL))
        return refuse_held(reader, refusal);
    if (reader->place == IN_KEY) {
        reader->is_list = json_span_string_is(held, "requests");
        reader->place = BEFORE_COLON;
    } else {
        reader->place = AFTER_VALUE;
    }
    return true;
}

/* Reads on in a held value. *ret_count is the number of bytes that belong to it. */
static bool read_held(struct message_requests *reader, struct str bytes, size_t *ret_count,
                      struct refusal *refusal) {
    size_t end = find_end(reader, bytes);
    *ret_count = end == SIZE_MAX ? bytes.bytes : end;
    buf_add(&reader->held, bytes.at, *ret_count);
    if (reader->held.overflowed) return refuse_length(reader, refusal);
    return end == SIZE_MAX || end_held(reader, refusal);
}

static bool begin_list(struct message_requests *reader, char c, struct refusal *refusal) {
    if (reader->has_list)
        return refuse(refusal, "invalid_value", "requests",
                      "requests: the key is given twice: it is not clear which one counts");
    if (c != '[')
        return refuse(refusal, "invalid_type", "requests",
                      "requests: expected an array of requests, at byte %" PRIu64 " of the body",
                      reader->at + 1);
    reader->has_list = reader->is_first = true;
    reader->place = BEFORE_REQUEST;
    return true;
}

/* Reads a byte between values. *ret_again: the byte begins a held value. */
static bool read_byte(struct message_requests *reader, char c, bool *ret_again,
                      struct refusal *refusal) {
    switch ((enum place)reader->place) {
    case BEFORE_BODY:
        if (c != '{') return refuse_byte(reader, c, "an object", refusal);
        reader->place = BEFORE_KEY;
        reader->is_first = true;
        return true;
    case BEFORE_KEY:
        if (c == '}' && reader->is_first) {
            reader->place = AFTER_BODY;
            return true;
        }
        if (c != '"') return refuse_byte(reader, c, "a member's name", refusal);
        begin_held(reader, IN_KEY);
        return *ret_again = true;
    case BEFORE_COLON:
        if (c != ':') return refuse_byte(reader, c, "':'", refusal);
        reader->place = BEFORE_VALUE;
        return true;
    case BEFORE_VALUE:
        if (reader->is_list) return begin_list(reader, c, refusal);
        begin_held(reader, IN_VALUE);
        return *ret_again = true;
    case BEFORE_REQUEST:
        if (c == ']' && reader->is_first) {
            reader->place = AFTER_VALUE;
            return true;
        }
        begin_held(reader, IN_REQUEST);
        return *ret_again = true;
    case AFTER_VALUE:
        if (c != ',' && c != '}') return refuse_byte(reader, c, "',' or '}'", refusal);
        reader->is_first = false;
        reader->place = c == ',' ? BEFORE_KEY : AFTER_BODY;
        return true;
    case AFTER_REQUEST:
        if (c != ',' && c != ']') return refuse_byte(reader, c, "',' or ']'", refusal);
        reader->is_first = false;
        reader->place = c == ',' ? BEFORE_REQUEST : AFTER_VALUE;
        return true;
    case AFTER_BODY: return refuse_byte(reader, c, "nothing behind the object", refusal);
    case IN_KEY:
    case IN_VALUE:
    case IN_REQUEST: break; /* read_held reads these */
    }
    return true;
}

static bool is_held(const struct message_requests *reader) {
    return reader->place == IN_KEY || reader->place == IN_VALUE || reader->place == IN_REQUEST;
}

bool message_requests_feed(struct message_requests *reader, struct str bytes,
                           struct refusal *ret_refusal) {
    while (bytes.bytes > 0) {
        size_t count = 1;
        bool again = false;
        if (is_held(reader)) {
            if (!read_held(reader, bytes, &count, ret_refusal)) return false;
        } else if (!is_space(*bytes.at) && !read_byte(reader, *bytes.at, &again, ret_refusal)) {
            return false;
        }
        if (again) continue;
        reader->at += count;
        bytes = str_skip(bytes, count);
    }
    return true;
}

bool message_requests_end(struct message_requests *reader, struct refusal *ret_refusal) {
    char text[WHERE_BYTES];
    const char *place = where(reader, text);
    if (reader->place == BEFORE_BODY)
        return refuse(ret_refusal, "invalid_json", NULL, "The request body is empty.");
    if (reader->place != AFTER_BODY)
        return refuse(ret_refusal, "invalid_json", place,
                      "%s: the body ends too early, after %" PRIu64 " bytes", place, reader->at);
    if (!reader->has_list)
        return refuse(ret_refusal, "missing_required_parameter", "requests",
                      "requests: Field required");
    if (reader->count == 0)
        return refuse(ret_refusal, "invalid_value", "requests",
                      "requests: a batch must have at least one request");
    return true;
}
