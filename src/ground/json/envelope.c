/* SPDX-License-Identifier: Apache-2.0 */
#include "json/envelope.h"

#include "base/utf8.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>

static void copy_cut(char *to, size_t room, const char *text) {
    size_t bytes = strlen(text);
    if (bytes >= room) bytes = utf8_valid_prefix((struct str){text, room - 1});
    memcpy(to, text, bytes);
    to[bytes] = '\0';
}

bool refuse_args(struct refusal *refusal, int32_t status, const char *code, const char *param,
                 const char *format, va_list args) {
    *refusal = (struct refusal){.status = status, .code = code};
    if (param) copy_cut(refusal->param, sizeof refusal->param, param);
    int bytes = vsnprintf(refusal->message, sizeof refusal->message, format, args);
    if (bytes >= (int)sizeof refusal->message)
        refusal->message[utf8_valid_prefix(str_from(refusal->message))] = '\0';
    return false;
}

bool refuse(struct refusal *refusal, const char *code, const char *param, const char *format, ...) {
    va_list args;
    va_start(args, format);
    refuse_args(refusal, 400, code, param, format, args);
    va_end(args);
    return false;
}

bool refuse_status(struct refusal *refusal, int32_t status, const char *code, const char *param,
                   const char *format, ...) {
    va_list args;
    va_start(args, format);
    refuse_args(refusal, status, code, param, format, args);
    va_end(args);
    return false;
}

bool refuse_missing(struct refusal *refusal, const char *param) {
    return refuse(refusal, "missing_required_parameter", param, "Missing required parameter: '%s'.",
                  param);
}

const char *json_kind_name(const json_t *value) {
    if (!value) return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a decimal";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    case JSON_NULL: return "null";
    }
    return "something else";
}

static const char *type_of(int32_t status) {
    if (status == 429) return "rate_limit_exceeded";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

static void write_text_or_null(struct buf *buf, const char *text) {
    if (text && *text)
        json_write_string(buf, str_from(text));
    else
        buf_add_text(buf, "null");
}

void envelope_write(struct buf *buf, int32_t status, const char *code, const char *param,
                    struct str message) {
    buf_add_text(buf, "{\"error\":{\"message\":");
    json_write_string(buf, message);
    buf_printf(buf, ",\"type\":\"%s\",\"param\":", type_of(status));
    write_text_or_null(buf, param);
    buf_add_text(buf, ",\"code\":");
    write_text_or_null(buf, code);
    buf_add_text(buf, "}}");
}

void refusal_write(struct buf *buf, const struct refusal *refusal) {
    envelope_write(buf, refusal->status, refusal->code, refusal->param, str_from(refusal->message));
}
