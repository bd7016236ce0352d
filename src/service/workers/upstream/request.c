/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/request.h"

#include "json/json.h"
#include "json/span.h"

struct str upstream_request_model(struct str body, struct buf *scratch) {
    struct str value, model = {NULL, 0};
    if (json_span_read(body, &value)) model = json_span_get(value, "model");
    return json_span_is_string(model) ? json_span_text(model, scratch) : (struct str){NULL, 0};
}

static void add_member(struct buf *buf, const char **comma, struct str key, struct str value) {
    buf_add_text(buf, *comma);
    buf_add_str(buf, key);
    buf_add_byte(buf, ':');
    buf_add_str(buf, value);
    *comma = ",";
}

/* The client's stream_options with the usage asked for. */
static void add_stream_options(struct buf *buf, const char **comma, struct str options) {
    struct json_span_iter iter;
    struct str key, value;
    buf_add_text(buf, *comma);
    buf_add_text(buf, "\"stream_options\":{\"include_usage\":true");
    bool inside = json_span_is_object(options) && json_span_enter(&iter, options);
    const char *next = ",";
    while (inside && json_span_member(&iter, &key, &value))
        if (!json_span_string_is(key, "include_usage")) add_member(buf, &next, key, value);
    buf_add_byte(buf, '}');
    *comma = ",";
}

/* The member that only quern's own engine knows; a server of another make may refuse it. */
static bool is_own(struct str key) {
    return json_span_string_is(key, "translated");
}

void upstream_request_write(struct buf *buf, struct str body, const char *model, bool is_stream,
                            bool *ret_wants_usage) {
    struct str value, key, options;
    struct json_span_iter iter;
    bool may_have_own = str_find(body, STR("\"translated\""), 0) != SIZE_MAX;
    *ret_wants_usage = false;
    if ((!model && !is_stream && !may_have_own) || !json_span_read(body, &value) ||
        !json_span_is_object(value)) {
        buf_add_str(buf, body);
        return;
    }
    options = json_span_get(value, "stream_options");
    if (json_span_is_object(options))
        *ret_wants_usage = str_is(json_span_get(options, "include_usage"), "true");
    const char *comma = "";
    buf_add_byte(buf, '{');
    bool inside = json_span_enter(&iter, value);
    struct str member;
    while (inside && json_span_member(&iter, &key, &member)) {
        if (is_stream && json_span_string_is(key, "stream_options")) continue;
        if (may_have_own && is_own(key)) continue;
        if (model && json_span_string_is(key, "model")) {
            buf_add_text(buf, comma);
            buf_add_text(buf, "\"model\":");
            json_write_string(buf, str_from(model));
            comma = ",";
        } else {
            add_member(buf, &comma, key, member);
        }
    }
    if (is_stream) add_stream_options(buf, &comma, options);
    buf_add_byte(buf, '}');
}
