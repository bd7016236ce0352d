/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/asked_elsewhere.h"

#include "grammar/asked_foreign.h"
#include "grammar/asked_names.h"
#include "json/json.h"
#include "json/span.h"

#include <stdio.h>
#include <string.h>

#define INSIDE_BYTES_MAX 65536
#define NAME_BYTES_MAX 64 /* longer names are no field */

/* Members of OpenAI's API and of vLLM that hold the answer to something without being a shape. */
static const char *const holding[] = {"tools",
                                      "tool_choice",
                                      "parallel_tool_calls",
                                      "functions",
                                      "function_call",
                                      "logit_bias",
                                      "min_tokens",
                                      "stop",
                                      "stop_token_ids",
                                      "stop_sequences",
                                      "bad_words",
                                      "allowed_token_ids",
                                      NULL};

static bool is_listed(const char *const *names, const char *name) {
    for (size_t i = 0; names && names[i]; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* Whether a value is what the API does without the member. */
static bool is_default(const char *name, const json_t *value) {
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    bool is_choice = strcmp(name, "tool_choice") == 0 || strcmp(name, "function_call") == 0;
    if (is_choice && strcmp(text, "auto") == 0) return true;
    if (strcmp(name, "parallel_tool_calls") == 0) return json_is_true(value);
    return asked_name_is_off(str_from(name), value);
}

/* What asked_foreign_check says of a body with this member alone. */
static bool check_alone(const char *name, json_t *value, struct refusal *refusal) {
    json_t *body = json_object();
    bool is_good =
        !body || json_object_set(body, name, value) != 0 || asked_foreign_check(body, refusal);
    json_decref(body);
    return is_good;
}

static bool check_value(const struct asked_api *api, const char *name, const char *param,
                        json_t *value, struct refusal *refusal) {
    enum asked_name kind = asked_name_find(str_from(name));
    if (kind == ASKED_NAME_FIELD || is_listed(holding, name))
        return is_default(name, value) || refuse_unsupported(refusal, param, api->reason);
    if (kind == ASKED_NAME_FOREIGN)
        return asked_name_is_off(str_from(name), value) ||
               refuse_unsupported(refusal, param, asked_name_reason(str_from(name)));
    return check_alone(name, value, refusal);
}

/* A member that is not read. `outer` is the object that it is in; empty: the request. */
static bool check_member(const struct asked_api *api, const char *outer, struct str key,
                         struct str value, struct refusal *refusal) {
    char name[NAME_BYTES_MAX], param[REFUSAL_PARAM_BYTES];
    struct buf scratch;
    struct error error;
    json_t *tree;
    buf_init(&scratch, BUF_UNLIMITED);
    struct str text = json_span_text(key, &scratch);
    bool is_name = text.bytes < sizeof name && !memchr(text.at, '\0', text.bytes);
    snprintf(name, sizeof name, "%.*s", is_name ? (int)text.bytes : 0, text.at);
    buf_release(&scratch);
    snprintf(param, sizeof param, "%s%s%s", outer, *outer ? "." : "", name);
    if (!is_name || (!is_listed(holding, name) && !asked_name_is_about(key, value))) return true;
    if (value.bytes > INSIDE_BYTES_MAX) return refuse_unsupported(refusal, param, api->reason);
    if (json_read(&tree, value, &error) != OK) return refuse_json(refusal, param, &error);
    bool is_good = check_value(api, name, param, tree, refusal);
    json_decref(tree);
    return is_good;
}

static bool check_members(const struct asked_api *api, const char *outer, struct str object,
                          const char *const *known, struct refusal *refusal) {
    struct json_span_iter iter;
    struct str key, value;
    if (!json_span_is_object(object) || !json_span_enter(&iter, object)) return true;
    while (json_span_member(&iter, &key, &value)) {
        bool is_read = false, is_open = !*outer && api->open && json_span_string_is(key, api->open);
        for (size_t i = 0; known && known[i] && !is_read; i++)
            is_read = json_span_string_is(key, known[i]);
        if (is_open && !check_members(api, api->open, value, api->inside, refusal)) return false;
        if (!is_read && !is_open && !check_member(api, outer, key, value, refusal)) return false;
    }
    return true;
}

bool asked_elsewhere_check(const struct asked_api *api, struct str object,
                           struct refusal *refusal) {
    return check_members(api, "", object, api->members, refusal);
}
