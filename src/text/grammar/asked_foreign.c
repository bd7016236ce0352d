/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/asked_foreign.h"

#include "base/utf8.h"
#include "grammar/asked_names.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 4 /* objects in unknown members; no server nests its constraints deeper */
#define SHOWN_BYTES 60

/* The place of a member: "param.key", cut at a character. */
struct field_place {
    char at[REFUSAL_PARAM_BYTES];
};

static struct field_place place_of(const char *param, const char *key) {
    struct field_place place;
    struct str shown = str_from(key);
    size_t used = strlen(param) + 2, room = used < sizeof place.at ? sizeof place.at - used : 0;
    if (shown.bytes > SHOWN_BYTES) shown.bytes = SHOWN_BYTES;
    if (shown.bytes > room) shown.bytes = room;
    shown.bytes = utf8_valid_prefix(shown);
    snprintf(place.at, sizeof place.at, "%s%s%.*s", param, *param ? "." : "", STR_ARGS(shown));
    return place;
}

static bool refuse_member(struct refusal *refusal, const char *param, const char *key,
                          const char *reason) {
    return refuse_unsupported(refusal, place_of(param, key).at, reason);
}

static bool is_listed(const char *key, const char *const *names) {
    for (size_t i = 0; names && names[i]; i++)
        if (strcmp(key, names[i]) == 0) return true;
    return false;
}

bool asked_foreign_check_members(const json_t *object, const char *param, const char *const *known,
                                 bool is_closed, struct refusal *refusal) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        struct str name = str_from(key);
        if (is_listed(key, known) || asked_name_is_off(name, value)) continue;
        if (is_closed) return refuse_member(refusal, param, key, "its type has no such member");
        if (asked_name_find_inside(name) == ASKED_NAME_FOREIGN)
            return refuse_member(refusal, param, key, asked_name_reason(name));
    }
    return true;
}

/* --- inside unknown members --- */

static bool check_inside(const json_t *value, const char *param, int depth,
                         struct refusal *refusal) {
    const char *key;
    json_t *member;
    size_t i;
    if (depth == DEPTH_MAX) return true;
    json_array_foreach(value, i,
                       member) if (!check_inside(member, param, depth + 1, refusal)) return false;
    if (!json_is_object(value)) return true;
    if (!asked_foreign_check_members(value, param, NULL, false, refusal)) return false;
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        if (!json_is_object(member) && !json_is_array(member)) continue;
        if (!check_inside(member, place_of(param, key).at, depth + 1, refusal)) return false;
    }
    return true;
}

/* --- tools --- */

/* A tool's own members: the schema and `strict` count inside of `function` alone. */
static bool check_tool(const json_t *tool, size_t index, struct refusal *refusal) {
    static const char *const of_tool[] = {"type", "function", NULL};
    /* A schema of what the function returns holds nothing that the model writes. */
    static const char *const of_function[] = {
        "name", "description", "parameters", "strict", "outputSchema", "output_schema", NULL};
    char param[REFUSAL_PARAM_BYTES];
    const json_t *function = json_member(tool, "function");
    snprintf(param, sizeof param, "tools[%zu]", index);
    if (!json_is_object(function)) return true;
    if (json_is_true(json_member(tool, "strict")))
        return refuse_member(refusal, param, "strict", "it belongs into the member 'function'");
    if (json_member(tool, "parameters"))
        return refuse_member(refusal, param, "parameters", "it belongs into the member 'function'");
    if (!asked_foreign_check_members(tool, param, of_tool, false, refusal)) return false;
    snprintf(param, sizeof param, "tools[%zu].function", index);
    return asked_foreign_check_members(function, param, of_function, false, refusal);
}

bool asked_foreign_check(const json_t *body, struct refusal *refusal) {
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)body, key, value) {
        struct str name = str_from(key);
        switch (asked_name_find(name)) {
        case ASKED_NAME_PLAIN:
        case ASKED_NAME_FIELD: break;
        case ASKED_NAME_FOREIGN:
            if (!asked_name_is_off(name, value))
                return refuse_member(refusal, "", key, asked_name_reason(name));
            break;
        case ASKED_NAME_UNKNOWN:
            if (!check_inside(value, place_of("", key).at, 0, refusal)) return false;
        }
    }
    json_array_foreach(json_member(body, "tools"), i,
                       value) if (!check_tool(value, i, refusal)) return false;
    return true;
}
