/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/error.h"

#include "base/utf8.h"
#include "json/json.h"
#include "json/span.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MESSAGE_BYTES_MAX ((size_t)64 << 10)
#define DETAILS_MAX 8
#define DEPTH_MAX 4
#define TEXT_BYTES_MAX ((size_t)300)
#define PAGE_BYTES_MAX ((size_t)64 << 10) /* bytes of a page that are looked at */

static struct str string_of(struct str object, const char *key) {
    struct str value = json_span_get(object, key);
    return json_span_is_string(value) ? value : (struct str){NULL, 0};
}

static bool is_array(struct str value) {
    return value.bytes > 0 && *value.at == '[';
}

struct str upstream_first_element(struct str list) {
    struct json_span_iter iter;
    struct str first;
    bool has_one =
        is_array(list) && json_span_enter(&iter, list) && json_span_element(&iter, &first);
    return has_one ? first : (struct str){NULL, 0};
}

struct str upstream_error_holder(struct str body) {
    static const char *const keys[] = {"error", "errors", "detail"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct str value = json_span_get(body, keys[i]);
        if (is_array(value)) value = upstream_first_element(value);
        if (json_span_is_object(value)) return value;
    }
    return body;
}

/* --- texts that are no JSON --- */

static size_t find_word(struct str text, const char *word, size_t from) {
    size_t bytes = strlen(word);
    for (size_t i = from; bytes <= text.bytes && i <= text.bytes - bytes; i++)
        if (strncasecmp(text.at + i, word, bytes) == 0) return i;
    return SIZE_MAX;
}

/* The title of a page, or the page without what stands before its body. */
static struct str words_of_page(struct str page) {
    size_t title = find_word(page, "<title>", 0), body = find_word(page, "<body", 0);
    if (title != SIZE_MAX) {
        struct str rest = str_skip(page, title + strlen("<title>"));
        size_t end = find_word(rest, "</title>", 0);
        if (end != SIZE_MAX) rest.bytes = end;
        if (str_trim(rest).bytes > 0) return rest;
    }
    return body == SIZE_MAX ? page : str_skip(page, body);
}

/* Appends what bytes are that no person reads: packed ones, UTF-16. */
static void add_bytes(struct buf *buf, struct str bytes) {
    buf_printf(buf, "%zu bytes that are no text in UTF-8; the first are", bytes.bytes);
    for (size_t i = 0; i < bytes.bytes && i < 8; i++)
        buf_printf(buf, " %02x", (unsigned)(unsigned char)bytes.at[i]);
}

/* True for a NUL, or a control character that no text has, among the first bytes. */
static bool is_binary(struct str text) {
    for (size_t i = 0; i < text.bytes && i < TEXT_BYTES_MAX; i++) {
        unsigned char c = (unsigned char)text.at[i];
        if (c < '\t' || (c > '\r' && c < ' ' && c != 0x1B)) return true;
    }
    return false;
}

void upstream_error_add_text(struct buf *buf, struct str text) {
    if (is_binary(text)) {
        add_bytes(buf, text);
        return;
    }
    text = str_trim(text);
    if (str_starts_with(text, STR("\xEF\xBB\xBF"))) text = str_skip(text, 3);
    if (text.bytes > PAGE_BYTES_MAX) text.bytes = PAGE_BYTES_MAX;
    bool is_page = str_starts_with(text, STR("<")), is_tag = false, needs_blank = false;
    struct buf line, whole;
    buf_init(&line, PAGE_BYTES_MAX * 2);
    if (is_page) text = words_of_page(text);
    for (size_t i = 0; i < text.bytes && line.bytes < TEXT_BYTES_MAX; i++) {
        unsigned char c = (unsigned char)text.at[i];
        if (is_page && c == '<') is_tag = true;
        bool is_space = is_tag || c <= ' ' || c == 0x7F;
        if (!is_space && needs_blank && line.bytes > 0) buf_add_byte(&line, ' ');
        needs_blank = is_space;
        if (!is_space) buf_add_byte(&line, (char)c);
        if (is_page && c == '>') is_tag = false;
    }
    struct str kept = buf_str(&line);
    kept.bytes -= utf8_incomplete_tail(kept);
    buf_init(&whole, PAGE_BYTES_MAX * 4);
    utf8_add_repaired(&whole, kept);
    buf_add_str(buf, buf_str(&whole));
    buf_release(&whole);
    buf_release(&line);
}

/* --- messages --- */

static bool add_message(struct buf *text, struct str value, int depth);

/* FastAPI's place of a field: "body.messages: ". */
static void add_place(struct buf *text, struct str object) {
    struct json_span_iter iter;
    struct str part, loc = json_span_get(object, "loc");
    bool inside = is_array(loc) && json_span_enter(&iter, loc);
    const char *dot = "";
    for (; inside && json_span_element(&iter, &part); dot = ".") {
        buf_add_text(text, dot);
        if (json_span_is_string(part))
            json_span_decode(text, part);
        else
            buf_add_str(text, part);
    }
    if (*dot) buf_add_text(text, ": ");
}

static bool add_list(struct buf *text, struct str list, int depth) {
    struct json_span_iter iter;
    struct str one;
    size_t from = text->bytes;
    bool inside = json_span_enter(&iter, list);
    for (int count = 0; inside && count < DETAILS_MAX && json_span_element(&iter, &one); count++) {
        size_t before = text->bytes;
        if (before > from) buf_add_text(text, "; ");
        if (json_span_is_object(one) && string_of(one, "msg").at) add_place(text, one);
        if (!add_message(text, one, depth)) buf_truncate(text, before);
    }
    return text->bytes > from;
}

/* The text that a gateway got from its provider, which may be JSON in a string. */
static void add_raw(struct buf *text, struct str object, int depth) {
    struct str value, raw = json_span_get(json_span_get(object, "metadata"), "raw");
    struct buf scratch;
    size_t from = text->bytes;
    if (!raw.at) return;
    buf_init(&scratch, MESSAGE_BYTES_MAX);
    if (from > 0) buf_add_text(text, ": ");
    size_t before = text->bytes;
    if (json_span_is_string(raw)) {
        json_span_decode(&scratch, raw);
        if (!json_span_read(buf_str(&scratch), &value) || !add_message(text, value, depth))
            upstream_error_add_text(text, buf_str(&scratch));
    } else {
        add_message(text, raw, depth);
    }
    if (text->bytes == before) buf_truncate(text, from);
    buf_release(&scratch);
}

static bool add_object(struct buf *text, struct str object, int depth) {
    static const char *const keys[] = {"message", "msg",    "error_description", "detail",
                                       "error",   "errors", "description",       "reason",
                                       "title",   "fault",  "faultstring"};
    size_t from = text->bytes;
    struct str error = string_of(object, "error"), message = string_of(object, "message");
    if (error.bytes > 2 && message.bytes > 2 && !str_equals(error, message)) {
        json_span_decode(text, error);
        buf_add_text(text, ": ");
    }
    size_t before = text->bytes;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && text->bytes == before; i++)
        add_message(text, json_span_get(object, keys[i]), depth);
    add_raw(text, object, depth);
    return text->bytes > from;
}

/* Appends what a value says; false if it says nothing. */
static bool add_message(struct buf *text, struct str value, int depth) {
    size_t from = text->bytes;
    if (depth == DEPTH_MAX || !value.at) return false;
    if (json_span_is_string(value)) {
        json_span_decode(text, value);
        return text->bytes > from;
    }
    if (is_array(value)) return add_list(text, value, depth + 1);
    return json_span_is_object(value) && add_object(text, value, depth + 1);
}

/* A body's own message is its last one: {"error":{"message":…},"message":"failed"}. */
static bool add_body_message(struct buf *text, struct str body) {
    static const char *const keys[] = {"error", "errors", "detail"};
    bool is_pair = string_of(body, "error").at && string_of(body, "message").at;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !is_pair; i++)
        if (add_message(text, json_span_get(body, keys[i]), 0)) return true;
    return add_message(text, body, 0);
}

/* --- the envelope --- */

static void add_string(struct buf *buf, struct str raw, const char *otherwise) {
    if (raw.at && raw.bytes <= MESSAGE_BYTES_MAX)
        json_span_add_ascii(buf, raw);
    else if (otherwise)
        json_write_string(buf, str_from(otherwise));
    else
        buf_add_text(buf, "null");
}

static const char *type_of(int status) {
    if (status == 429) return "rate_limit_exceeded";
    return status < 500 ? "invalid_request_error" : "server_error";
}

static const char *code_of(struct str type, int status) {
    if (type.at && json_span_string_is(type, "exceed_context_size_error"))
        return "context_length_exceeded"; /* llama-server's type for it */
    return status == 429 ? "rate_limit_exceeded" : NULL;
}

/* The sentence for an answer that is no JSON, or that says nothing. */
static void add_sentence(struct buf *sentence, struct str text, int status, const char *name) {
    buf_printf(sentence, "The upstream %s answered with status %d", name, status);
    size_t before = sentence->bytes;
    buf_add_text(sentence, ": ");
    size_t from = sentence->bytes;
    upstream_error_add_text(sentence, text);
    if (sentence->bytes > from) return;
    buf_truncate(sentence, before);
    buf_add_text(sentence, " and no reason.");
}

void upstream_error_add(struct buf *buf, struct str body, struct str text, int status,
                        const char *name) {
    struct buf message;
    buf_init(&message, MESSAGE_BYTES_MAX);
    if (is_array(body)) body = upstream_first_element(body);
    bool is_object = json_span_is_object(body);
    struct str holder = is_object ? upstream_error_holder(body) : (struct str){NULL, 0};
    if (!is_object || !add_body_message(&message, body) || message.overflowed) {
        buf_clear(&message);
        add_sentence(&message, is_object ? (struct str){NULL, 0} : text, status, name);
    }
    struct str type = string_of(holder, "type");
    buf_add_text(buf, "{\"error\":{\"message\":");
    json_write_string(buf, buf_str(&message));
    buf_add_text(buf, ",\"type\":");
    add_string(buf, type, type_of(status));
    buf_add_text(buf, ",\"param\":");
    add_string(buf, string_of(holder, "param"), NULL);
    buf_add_text(buf, ",\"code\":");
    add_string(buf, string_of(holder, "code"), code_of(type, status));
    buf_add_text(buf, "}}");
    buf_release(&message);
}

void upstream_error_line(char *ret_line, size_t room, struct str envelope) {
    struct buf text, line;
    buf_init(&text, MESSAGE_BYTES_MAX);
    buf_init(&line, MESSAGE_BYTES_MAX);
    struct str message = string_of(json_span_get(envelope, "error"), "message");
    if (message.at) json_span_decode(&text, message);
    upstream_error_add_text(&line, buf_str(&text));
    struct str kept = buf_str(&line);
    if (kept.bytes >= room) kept = (struct str){kept.at, room - 1};
    kept.bytes = utf8_valid_prefix(kept);
    memcpy(ret_line, kept.bytes ? kept.at : "", kept.bytes);
    ret_line[kept.bytes] = '\0';
    buf_release(&text);
    buf_release(&line);
}
