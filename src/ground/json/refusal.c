/* SPDX-License-Identifier: Apache-2.0 */
#include "json/refusal.h"

#include "base/utf8.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>

const char *value_text(const json_t *value, char text[VALUE_TEXT_BYTES]) {
    struct buf buf;
    buf_init(&buf, BUF_UNLIMITED);
    if (json_is_string(value)) {
        buf_printf(&buf, "'%s'", json_string_value(value));
    } else if (json_is_real(value)) {
        /* 15 digits, because 17 would show 0.1 as 0.10000000000000001. */
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

bool refuse_type(struct refusal *refusal, const char *param, const char *expected,
                 const json_t *got) {
    char text[VALUE_TEXT_BYTES];
    bool is_plain = json_is_string(got) || json_is_number(got) || json_is_boolean(got);
    return refuse(refusal, "invalid_type", param,
                  "Invalid type for '%s': expected %s, but got %s%s%s instead.", param, expected,
                  json_kind_name(got), is_plain ? ": " : "", is_plain ? value_text(got, text) : "");
}

json_t *require_member(const json_t *object, const char *key, json_type type, const char *param,
                       struct refusal *refusal) {
    json_t *value = json_member(object, key);
    if (value && json_typeof(value) == type) return value;
    if (!value)
        refuse_missing(refusal, param);
    else
        refuse_type(refusal, param,
                    type == JSON_STRING   ? "a string"
                    : type == JSON_OBJECT ? "an object"
                                          : "an array of objects",
                    value);
    return NULL;
}

bool refuse_value(struct refusal *refusal, const char *param, const json_t *got,
                  const char *supported) {
    char text[VALUE_TEXT_BYTES];
    return refuse(refusal, "invalid_value", param,
                  "Invalid value for '%s': %s. Supported values are: %s.", param,
                  value_text(got, text), supported);
}

bool refuse_json(struct refusal *refusal, const char *param, const struct error *error) {
    return refuse(refusal, "invalid_value", param, "Invalid '%s': %s%s.", param,
                  error->code == ERR_INVALID ? "it is " : "", error->text);
}

bool refuse_unsupported(struct refusal *refusal, const char *param, const char *reason) {
    return refuse(refusal, "unsupported_parameter", param, "Unsupported parameter: '%s': %s.",
                  param, reason);
}
