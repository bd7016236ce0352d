/* SPDX-License-Identifier: Apache-2.0 */
#include "decisions/input.h"

#include "base/map.h"
#include "decisions/parts.h"
#include "json/json.h"

#include <stdio.h>

#define USER_PARTS (PARTS_INPUT_TEXT | PARTS_INPUT_JSON)

#define ROLES "'user', 'developer', 'system', 'assistant'"
#define TYPES                                                                                      \
    "'message', 'function_call', 'function_call_output', 'custom_tool_call', "                     \
    "'custom_tool_call_output'"

/* The items while they are read. */
struct reading {
    struct decision_input *input;
    bool is_mixed;      /* state has other items than user messages */
    struct map calls;   /* ids of the calls so far */
    struct buf scratch; /* the text of an item */
    struct refusal *refusal;
};

/* Adds the scratch to a text that is separated by blank lines. */
static void add_block(struct buf *text, bool is_first, const struct buf *block) {
    if (!is_first) buf_add_text(text, "\n\n");
    buf_add_str(text, buf_str(block));
}

static bool is_system(struct str role) {
    return str_is(role, "system") || str_is(role, "developer");
}

static bool read_message(struct reading *is, const json_t *item, const char *param,
                         bool *ret_is_system) {
    char path[REFUSAL_PARAM_BYTES];
    struct str role;
    unsigned kinds = USER_PARTS;
    if (!parts_read_string(item, param, "role", &role, is->refusal)) return false;
    bool is_assistant = str_is(role, "assistant");
    *ret_is_system = is_system(role);
    if (!str_is(role, "user") && !is_assistant && !*ret_is_system)
        return refuse_value(is->refusal, parts_path(path, param, "role"), json_member(item, "role"),
                            ROLES);
    if (*ret_is_system) kinds = PARTS_INPUT_TEXT;
    if (is_assistant) kinds = PARTS_OUTPUT_TEXT | PARTS_REFUSAL;
    if (is->is_mixed && !*ret_is_system) buf_printf(&is->scratch, "%.*s:\n", STR_ARGS(role));
    return parts_read(json_member(item, "content"), parts_path(path, param, "content"), kinds,
                      &is->scratch, is->refusal);
}

/* Adds "call NAME(ARGUMENTS)". `member` has the arguments. */
static bool read_call(struct reading *is, const json_t *item, const char *param,
                      const char *member) {
    struct str name, arguments, id;
    if (!parts_read_string(item, param, "name", &name, is->refusal) ||
        !parts_read_string(item, param, member, &arguments, is->refusal) ||
        !parts_read_string(item, param, "call_id", &id, is->refusal))
        return false;
    map_put(&is->calls, id, 1);
    buf_add_text(&is->scratch, "call ");
    buf_add_str(&is->scratch, name);
    buf_add_byte(&is->scratch, '(');
    buf_add_str(&is->scratch, arguments);
    buf_add_byte(&is->scratch, ')');
    return true;
}

/* Adds "result of CALL_ID:" and the output, which belongs to an earlier call. */
static bool read_output(struct reading *is, const json_t *item, const char *param) {
    char path[REFUSAL_PARAM_BYTES];
    struct str id;
    if (!parts_read_string(item, param, "call_id", &id, is->refusal)) return false;
    if (!map_get(&is->calls, id, NULL)) {
        char text[VALUE_TEXT_BYTES];
        parts_path(path, param, "call_id");
        return refuse(is->refusal, "invalid_value", path,
                      "Invalid '%s': %s is the id of no call before it.", path,
                      value_text(json_member(item, "call_id"), text));
    }
    buf_add_text(&is->scratch, "result of ");
    buf_add_str(&is->scratch, id);
    buf_add_text(&is->scratch, ":\n");
    return parts_read(json_member(item, "output"), parts_path(path, param, "output"), USER_PARTS,
                      &is->scratch, is->refusal);
}

static bool read_item(struct reading *is, const json_t *item, const char *param,
                      bool *ret_is_system) {
    char path[REFUSAL_PARAM_BYTES];
    *ret_is_system = false;
    if (!json_is_object(item)) return refuse_type(is->refusal, param, "an object", item);
    const json_t *type = json_member(item, "type");
    parts_path(path, param, "type");
    if (type && !json_is_string(type)) return refuse_type(is->refusal, path, "a string", type);
    struct str name = json_str(type);
    if (!type || str_is(name, "message")) return read_message(is, item, param, ret_is_system);
    if (str_is(name, "function_call")) return read_call(is, item, param, "arguments");
    if (str_is(name, "custom_tool_call")) return read_call(is, item, param, "input");
    if (str_is(name, "function_call_output") || str_is(name, "custom_tool_call_output"))
        return read_output(is, item, param);
    return refuse_value(is->refusal, path, type, TYPES);
}

/* True for any item that is no message of a user, a developer or a system. */
static bool is_other(const json_t *item) {
    struct str role = json_member_str(item, "role"), type = json_member_str(item, "type");
    bool is_message = type.bytes == 0 || str_is(type, "message");
    return !is_message || !(str_is(role, "user") || is_system(role));
}

static bool read_items(struct reading *is, const json_t *items) {
    struct decision_input *input = is->input;
    bool is_first = true;
    for (size_t i = 0; i < json_array_size(items); i++)
        is->is_mixed = is->is_mixed || is_other(json_array_get(items, i));
    for (size_t i = 0; i < json_array_size(items); i++) {
        char param[REFUSAL_PARAM_BYTES];
        bool is_system_item;
        buf_clear(&is->scratch);
        if (!read_item(is, json_array_get(items, i), parts_index(param, "input", i),
                       &is_system_item))
            return false;
        if (is_system_item) {
            add_block(&input->system, !input->has_system, &is->scratch);
            input->has_system = true;
        } else {
            add_block(&input->state, is_first, &is->scratch);
            is_first = false;
        }
        if (is->scratch.overflowed || input->state.overflowed || input->system.overflowed)
            return refuse(is->refusal, "string_above_max_length", "input",
                          "Invalid 'input': it is longer than %zu bytes.",
                          DECISION_INPUT_BYTES_MAX);
    }
    return true;
}

static bool read_input(struct decision_input *input, const json_t *value, struct refusal *refusal) {
    if (!value) return refuse_missing(refusal, "input");
    if (json_is_string(value)) {
        buf_add_str(&input->state, json_str(value));
        return true;
    }
    if (!json_is_array(value))
        return refuse_type(refusal, "input", "a string or an array of items", value);
    if (json_array_size(value) == 0)
        return refuse(refusal, "array_below_min_length", "input",
                      "Invalid 'input': an array of items must not be empty.");
    struct reading is = {.input = input, .refusal = refusal};
    map_init(&is.calls);
    buf_init(&is.scratch, DECISION_INPUT_BYTES_MAX);
    bool is_good = read_items(&is, value);
    buf_release(&is.scratch);
    map_release(&is.calls);
    return is_good;
}

bool decision_input_read(struct decision_input *ret_input, const json_t *body,
                         struct refusal *ret_refusal) {
    struct decision_input input = {.has_system = false};
    buf_init(&input.state, DECISION_INPUT_BYTES_MAX);
    buf_init(&input.system, DECISION_INPUT_BYTES_MAX);
    bool is_good = read_input(&input, json_member(body, "input"), ret_refusal);
    if (is_good)
        *ret_input = input;
    else
        decision_input_release(&input);
    return is_good;
}

void decision_input_release(struct decision_input *input) {
    buf_release(&input->state);
    buf_release(&input->system);
    *input = (struct decision_input){.has_system = false};
}
