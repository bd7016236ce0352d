/* SPDX-License-Identifier: Apache-2.0 */
#include "compare/result_line.h"

#include "answer/answer_tree.h"
#include "answer/answer_usage.h"
#include "base/no_memory.h"
#include "json/json.h"
#include "json/span.h"

#include <stdlib.h>

#define GOOD_STATUS 200
#define NAME_BYTES_MAX 512
#define PREDICATE_IS_TRUE 0.5

/* --- values by name --- */

static void set(json_t *values, struct str name, const json_t *value) {
    json_object_setn_new_nocheck(values, name.at ? name.at : "", name.bytes,
                                 json_incref((json_t *)(uintptr_t)value));
}

/* Adds `value` under the name in `name`; members of an object by their own names behind it.
 * json_read bounds the depth. A member whose name would pass the maximum of `name` is left out. */
static void flatten(json_t *values, struct buf *name, const json_t *value) {
    const char *key;
    json_t *member;
    size_t key_bytes, bytes = name->bytes;
    if (!json_is_object(value) || json_object_size(value) == 0) {
        set(values, buf_str(name), value);
        return;
    }
    json_object_keylen_foreach((json_t *)(uintptr_t)value, key, key_bytes, member) {
        if (bytes > 0) buf_add_byte(name, '.');
        buf_add(name, key, key_bytes);
        if (!name->overflowed) flatten(values, name, member);
        buf_truncate(name, bytes);
        name->overflowed = false;
    }
}

/* --- texts --- */

static void add_text(struct result_line *line, struct buf *name, struct str text) {
    json_t *value;
    struct error error;
    if (json_read(&value, json_span_unfenced(text), &error) == OK) {
        line->is_json = json_is_object(value) || json_is_array(value);
        if (line->is_json || json_is_number(value)) {
            if (!json_is_object(value) || json_object_size(value) == 0)
                buf_add_text(name, RESULT_TEXT);
            flatten(line->values, name, value);
            json_decref(value);
            return;
        }
        json_decref(value);
    }
    value = json_stringn_nocheck(text.at ? text.at : "", text.bytes);
    set(line->values, STR(RESULT_TEXT), value);
    json_decref(value);
}

/* Adds the call of a function by its name and arguments, which some servers give as an object. */
static void add_call(struct result_line *line, struct buf *name, const json_t *function) {
    json_t *arguments = json_member(function, "arguments");
    struct error error;
    if (!json_is_string(json_member(function, "name"))) return;
    line->is_json = true;
    set(line->values, STR("call"), json_member(function, "name"));
    buf_add_str(name, json_member_str(function, "name"));
    if (json_is_object(arguments)) {
        flatten(line->values, name, arguments);
    } else if (json_read(&arguments, json_str(arguments), &error) == OK) {
        flatten(line->values, name, arguments);
        json_decref(arguments);
    }
    buf_clear(name);
}

/* --- decisions --- */

static void add_truth(json_t *values, struct buf *name, const json_t *probability) {
    bool is_true = json_number_value(probability) >= PREDICATE_IS_TRUE;
    set(values, buf_str(name), is_true ? json_true() : json_false());
    buf_add_text(name, ".probability");
    set(values, buf_str(name), probability);
}

static void add_decision(struct result_line *line, struct buf *name, const json_t *answer) {
    const json_t *probability = json_member(answer, "probability");
    if (!probability) probability = json_member(answer, "noul");
    if (json_is_number(probability))
        add_truth(line->values, name, probability);
    else if (json_member(answer, "choice"))
        set(line->values, buf_str(name), json_member(answer, "choice"));
    else if (json_member(answer, "score"))
        set(line->values, buf_str(name), json_member(answer, "score"));
    buf_clear(name);
}

static void add_decisions(struct result_line *line, struct buf *name, const json_t *answers) {
    const char *key;
    json_t *answer;
    size_t index, key_bytes;
    line->is_json = true;
    json_array_foreach(answers, index, answer) {
        const json_t *own = json_member(answer, "name");
        if (json_is_string(own))
            buf_add_str(name, json_str(own));
        else
            buf_printf(name, "%zu", index);
        add_decision(line, name, answer);
    }
    json_object_keylen_foreach((json_t *)(uintptr_t)answers, key, key_bytes, answer) {
        buf_add(name, key, key_bytes);
        add_decision(line, name, answer);
    }
}

/* --- lines --- */

static void read_values(struct result_line *line, const json_t *body) {
    const json_t *answers = json_member(body, "answers");
    struct answer_tree found;
    json_t *call;
    size_t index;
    struct buf name, text;
    answer_tree_find(&found, body);
    buf_init(&name, NAME_BYTES_MAX);
    buf_init(&text, BUF_UNLIMITED);
    line->values = json_object();
    if (!line->values) no_memory();
    json_array_foreach(found.calls, index, call)
        add_call(line, &name, json_member(call, "function"));
    if (json_is_object(found.calls)) add_call(line, &name, found.calls);
    answer_tree_add_text(&text, &found);
    if (json_is_array(answers) || json_is_object(answers))
        add_decisions(line, &name, answers);
    else if (found.kind != ANSWER_IS_NOTHING && found.kind != ANSWER_IS_CALL)
        add_text(line, &name, buf_str(&text));
    if (json_object_size(line->values) == 0) set(line->values, STR(RESULT_BODY), body);
    buf_release(&text);
    buf_release(&name);
}

static void read_usage(struct result_line *line, struct str usage) {
    struct answer_usage told;
    answer_usage_read(&told, usage);
    line->usage.prompt_tokens = answer_usage_prompt(&told);
    line->usage.completion_tokens = answer_usage_count(told.completion);
    line->usage.cached_tokens = answer_usage_count(told.cached);
}

enum err result_line_read(struct result_line *ret_line, struct str text, bool wants_values,
                          struct buf *id, struct error *error) {
    struct result_line line = {.is_answered = false};
    struct str whole, status;
    uint64_t code = 0;
    if (!json_span_is_utf8(text) || !json_span_read(text, &whole) || !json_span_is_object(whole))
        return err_set(error, ERR_INVALID, "not a JSON object");
    struct str custom_id = json_span_get(whole, "custom_id");
    if (!json_span_is_string(custom_id)) return err_set(error, ERR_INVALID, "it has no custom_id");
    buf_clear(id);
    json_span_decode(id, custom_id);
    struct str response = json_span_get(whole, "response"), body = {NULL, 0};
    if (json_span_is_object(response)) body = json_span_get(response, "body");
    status = json_span_get(response, "status_code");
    struct str failure = json_span_get(whole, "error");
    bool has_failed = failure.at && !str_is(failure, "null") && !str_is(failure, "{}");
    line.is_answered = str_to_u64(status, &code) && code == GOOD_STATUS &&
                       json_span_is_object(body) && !has_failed;
    if (line.is_answered) read_usage(&line, json_span_get(body, "usage"));
    if (line.is_answered && wants_values) {
        json_t *tree;
        enum err err = json_read(&tree, body, error);
        if (err != OK) return err;
        read_values(&line, tree);
        json_decref(tree);
    }
    line.custom_id = buf_str(id);
    *ret_line = line;
    return OK;
}

void result_line_release(struct result_line *line) {
    json_decref(line->values);
    line->values = NULL;
}

void result_line_write_answer(struct buf *out, const struct result_line *line) {
    const json_t *text = json_object_get(line->values, RESULT_TEXT);
    if (!line->is_answered)
        buf_add_text(out, "(no answer)");
    else if (json_is_string(text) && json_object_size(line->values) == 1)
        buf_add_str(out, json_str(text));
    else
        json_write(out, line->values);
}
