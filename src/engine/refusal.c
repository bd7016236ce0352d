/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/refusal.h"

#include "base/utf8.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>

static bool fill(struct refusal *refusal, const char *code, const char *param) {
    *refusal = (struct refusal){.status = 400, .type = "invalid_request_error", .code = code};
    if (param) snprintf(refusal->param, sizeof refusal->param, "%s", param);
    return false;
}

bool refuse(struct refusal *refusal, const char *code, const char *param, const char *format, ...) {
    fill(refusal, code, param);
    va_list args;
    va_start(args, format);
    vsnprintf(refusal->message, sizeof refusal->message, format, args);
    va_end(args);
    return false;
}

/* The largest valid prefix of `text` that leaves room for an ellipsis. */
const char *value_text(const json_t *value, char text[VALUE_TEXT_BYTES]) {
    struct buf buf;
    buf_init(&buf, BUF_UNLIMITED);
    if (json_is_string(value)) {
        buf_printf(&buf, "'%s'", json_string_value(value));
    } else if (json_is_real(value)) {
        /* Shorter than 17 digits when that reads back the same. */
        buf_printf(&buf, "%.15g", json_real_value(value));
    } else if (json_is_object(value) || json_is_array(value)) {
        buf_add_text(&buf, json_is_object(value) ? "an object" : "an array");
    } else {
        json_write(&buf, value);
    }
    struct str whole = buf_str(&buf);
    if (whole.bytes < VALUE_TEXT_BYTES) {
        memcpy(text, whole.at, whole.bytes + 1);
    } else {
        struct str cut = {whole.at, VALUE_TEXT_BYTES - sizeof "…"};
        size_t bytes = utf8_valid_prefix(cut);
        memcpy(text, whole.at, bytes);
        memcpy(text + bytes, "…", sizeof "…");
    }
    buf_release(&buf);
    return text;
}

static const char *type_name(const json_t *value) {
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

bool refuse_missing(struct refusal *refusal, const char *param) {
    return refuse(refusal, "missing_required_parameter", param, "Missing required parameter: '%s'.",
                  param);
}

bool refuse_type(struct refusal *refusal, const char *param, const char *expected,
                 const json_t *got) {
    char text[VALUE_TEXT_BYTES];
    bool is_plain = json_is_string(got) || json_is_number(got) || json_is_boolean(got);
    return refuse(refusal, "invalid_type", param,
                  "Invalid type for '%s': expected %s, but got %s%s%s instead.", param, expected,
                  type_name(got), is_plain ? ": " : "", is_plain ? value_text(got, text) : "");
}

bool refuse_value(struct refusal *refusal, const char *param, const json_t *got,
                  const char *supported) {
    char text[VALUE_TEXT_BYTES];
    return refuse(refusal, "invalid_value", param,
                  "Invalid value for '%s': %s. Supported values are: %s.", param,
                  value_text(got, text), supported);
}

bool refuse_unsupported(struct refusal *refusal, const char *param, const char *reason) {
    return refuse(refusal, "unsupported_parameter", param, "Unsupported parameter: '%s': %s.",
                  param, reason);
}

bool refuse_cancelled(struct refusal *refusal) {
    refuse(refusal, "cancelled", NULL, "The request was cancelled.");
    refusal->status = 499;
    return false;
}

bool refuse_fault(struct refusal *refusal, const char *format, ...) {
    fill(refusal, NULL, NULL);
    refusal->status = 500;
    refusal->type = "server_error";
    va_list args;
    va_start(args, format);
    vsnprintf(refusal->message, sizeof refusal->message, format, args);
    va_end(args);
    return false;
}

static void write_text_or_null(struct buf *out, const char *text) {
    if (text && *text)
        json_write_string(out, str_from(text));
    else
        buf_add_text(out, "null");
}

void refusal_write(struct buf *out, const struct refusal *refusal) {
    buf_add_text(out, "{\"error\":{\"message\":");
    json_write_string(out, str_from(refusal->message));
    buf_add_text(out, ",\"type\":");
    json_write_string(out, str_from(refusal->type));
    buf_add_text(out, ",\"param\":");
    write_text_or_null(out, refusal->param);
    buf_add_text(out, ",\"code\":");
    write_text_or_null(out, refusal->code);
    buf_add_text(out, "}}");
}
