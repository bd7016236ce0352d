/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/error.h"

#include "json/json.h"
#include "json/span.h"

#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES_MAX ((size_t)64 << 10)
#define DETAILS_MAX 8

/* The parts, as raw JSON strings; `at` is NULL for a part that the body lacks. */
struct parts {
    struct str message, type, param, code;
};

static struct str string_of(struct str object, const char *key) {
    struct str value = json_span_get(object, key);
    return json_span_is_string(value) ? value : (struct str){NULL, 0};
}

static struct parts parts_of(struct str object) {
    return (struct parts){.message = string_of(object, "message"),
                          .type = string_of(object, "type"),
                          .param = string_of(object, "param"),
                          .code = string_of(object, "code")};
}

/* FastAPI's list: "body.messages: Field required; …", as text. */
static void add_details(struct buf *text, struct str list) {
    struct json_span_iter iter, place;
    struct str one, part;
    bool inside = json_span_enter(&iter, list);
    for (int count = 0; inside && count < DETAILS_MAX && json_span_element(&iter, &one); count++) {
        struct str message = string_of(one, "msg"), loc = json_span_get(one, "loc");
        if (!message.at) continue;
        if (text->bytes > 0) buf_add_text(text, "; ");
        bool is_list = loc.bytes > 0 && *loc.at == '[' && json_span_enter(&place, loc);
        for (const char *dot = ""; is_list && json_span_element(&place, &part); dot = ".") {
            buf_add_text(text, dot);
            if (json_span_is_string(part))
                json_span_decode(text, part);
            else
                buf_add_str(text, part);
        }
        if (is_list) buf_add_text(text, ": ");
        json_span_decode(text, message);
    }
}

static struct parts find_parts(struct str body, struct buf *details) {
    struct str error = json_span_get(body, "error"), detail = json_span_get(body, "detail");
    if (json_span_is_object(error)) return parts_of(error);
    if (json_span_is_string(error)) return (struct parts){.message = error};
    if (json_span_is_string(detail)) return (struct parts){.message = detail};
    if (json_span_is_object(detail)) return parts_of(detail);
    if (detail.bytes > 0 && *detail.at == '[') add_details(details, detail);
    return parts_of(body);
}

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

void upstream_error_add(struct buf *buf, struct str body, int status, const char *name) {
    struct buf details;
    buf_init(&details, MESSAGE_BYTES_MAX);
    struct parts parts = {.message = {NULL, 0}};
    if (body.at) parts = find_parts(body, &details);
    buf_add_text(buf, "{\"error\":{\"message\":");
    if (details.bytes > 0) {
        json_write_string(buf, buf_str(&details));
    } else if (parts.message.at && parts.message.bytes <= MESSAGE_BYTES_MAX) {
        json_span_add_ascii(buf, parts.message);
    } else {
        struct buf sentence;
        buf_init(&sentence, 512);
        buf_printf(&sentence, "The upstream %s answered with status %d and no reason.", name,
                   status);
        json_write_string(buf, buf_str(&sentence));
        buf_release(&sentence);
    }
    buf_add_text(buf, ",\"type\":");
    add_string(buf, parts.type, type_of(status));
    buf_add_text(buf, ",\"param\":");
    add_string(buf, parts.param, NULL);
    buf_add_text(buf, ",\"code\":");
    add_string(buf, parts.code, code_of(parts.type, status));
    buf_add_text(buf, "}}");
    buf_release(&details);
}
