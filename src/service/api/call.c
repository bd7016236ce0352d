/* SPDX-License-Identifier: Apache-2.0 */

/* What the handlers of routes share about a call: who may see what, its body, its limit. */

#include "api/api_internal.h"
#include "json/span.h"

#include <string.h>

#define SHORT_BYTES ((size_t)64 << 10) /* longer bodies are not built as trees */

bool api_may_see(const struct http_request *request, const char *owner) {
    const struct key_caller *caller = http_request_caller(request);
    return key_caller_has(caller, KEY_SCOPE_ADMIN) || strcmp(caller->owner, owner) == 0;
}

const char *api_sees_owner(const struct http_request *request) {
    const struct key_caller *caller = http_request_caller(request);
    return key_caller_has(caller, KEY_SCOPE_ADMIN) ? NULL : caller->owner;
}

bool api_refuses_new_work(struct api *api, struct http_request *request) {
    if (!atomic_load(&api->draining)) return false;
    api_fail(request, 503, NULL, NULL, "The server is draining; try again later");
    return true;
}

bool api_is_gone(void *context) {
    return http_request_is_gone(context);
}

void api_answer_json(struct http_request *request, struct buf *buf) {
    http_answer_json(request, buf);
}

bool api_read_object(struct http_request *request, json_t **ret_body) {
    struct error error;
    json_t *body = NULL;
    struct str text = http_request_body(request);
    size_t room = api_tree_room(text.bytes);
    enum err err = json_read_once(&body, text, &room, &error);
    if (err != OK) {
        api_fail_json(request, err, &error);
        return false;
    }
    if (!json_is_object(body)) {
        json_decref(body);
        api_fail_param(request, NULL, NULL, "The request body must be a JSON object");
        return false;
    }
    *ret_body = body;
    return true;
}

size_t api_tree_room(size_t text_bytes) {
    size_t room = API_TREE_COST * text_bytes;
    return room > API_TREE_BYTES_LEAST ? room : API_TREE_BYTES_LEAST;
}

void api_fail_json(struct http_request *request, enum err err, const struct error *error) {
    if (err == ERR_LIMIT)
        api_fail_param(request, "request_too_complex", NULL, "The request body is too complex: %s",
                       error->text);
    else if (err == ERR_INVALID)
        api_fail_param(request, NULL, NULL, "The request body is %s", error->text);
    else
        api_fail_err(request, err, error, NULL);
}

bool api_read_limit(struct http_request *request, size_t otherwise, size_t most,
                    size_t *ret_limit) {
    struct str text = http_request_query(request, "limit");
    int64_t limit;
    *ret_limit = otherwise;
    if (!text.at) return true;
    if (!str_to_i64(text, &limit)) {
        api_fail_param(request, "invalid_type", "limit",
                       "Invalid type for 'limit': expected an integer, got '%.100s'.",
                       api_text(request, text));
        return false;
    }
    if (limit >= 1 && (uint64_t)limit <= most) {
        *ret_limit = (size_t)limit;
        return true;
    }
    api_fail_param(request, limit < 1 ? "integer_below_min_value" : "integer_above_max_value",
                   "limit", "Invalid 'limit': expected a value from 1 to %zu, got %.20s.", most,
                   api_text(request, text));
    return false;
}

const char *api_text(struct http_request *request, struct str text) {
    struct str copy = arena_copy(http_request_arena(request), text);
    return copy.at ? copy.at : "";
}

/* A long body is only stepped over: its tree would cost up to 75
 * times its bytes here, and the worker reads it once more. False, and answered with 400, if the
 * body is no object. */
bool api_find_object(struct http_request *request, struct str text, struct str *ret_object) {
    struct error error;
    json_t *tree = NULL;
    size_t room = api_tree_room(text.bytes);
    bool is_json = json_span_is_utf8(text) && json_span_read(text, ret_object);
    if (text.bytes <= SHORT_BYTES || !is_json) {
        /* The tree tells the fault and its place, and finds numbers that quern cannot hold. */
        enum err err = json_read_once(&tree, text, &room, &error);
        json_decref(tree);
        if (err == ERR_LIMIT && !is_json) err = err_set(&error, ERR_INVALID, "not valid JSON");
        if (err != OK && err != ERR_LIMIT) {
            api_fail_json(request, err, &error);
            return false;
        }
    }
    if (json_span_is_object(*ret_object)) return true;
    api_fail_param(request, NULL, NULL, "The request body must be a JSON object");
    return false;
}
