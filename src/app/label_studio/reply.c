/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/reply.h"

#include "answer/answer_tree.h"
#include "json/json.h"
#include "json/span.h"

#include <stdlib.h>
#include <string.h>

#define GOOD_STATUS 200
#define PREDICATE_IS_TRUE 0.5
#define ELEMENTS_MAX 1000 /* an index above is none */
#define REMOVED                                                                                    \
    "\x01"                                                                                         \
    "removed" /* the one member of an object that was taken out of its array */

static json_t *object_of(struct str text) {
    json_t *value = NULL;
    struct error ignored;
    if (json_read(&value, json_span_unfenced(text), &ignored) != OK) return NULL;
    if (json_is_object(value) && json_object_size(value) > 0) return value;
    json_decref(value);
    return NULL;
}

static json_t *whole_text(struct str text) {
    json_t *object = json_object();
    json_object_set_new(object, REPLY_TEXT,
                        json_stringn_nocheck(text.at ? text.at : "", text.bytes));
    return object;
}

static json_t *calls_as_text(const json_t *calls) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, calls);
    json_t *object = whole_text(buf_str(&text));
    buf_release(&text);
    return object;
}

static void add_decision(json_t *object, struct str name, const json_t *answer) {
    const json_t *probability = json_member(answer, "probability");
    const json_t *value = json_member(answer, "choice");
    if (!probability) probability = json_member(answer, "noul");
    if (!value) value = json_member(answer, "score");
    if (json_is_number(probability))
        value = json_number_value(probability) >= PREDICATE_IS_TRUE ? json_true() : json_false();
    if (value) json_object_setn(object, name.at, name.bytes, (json_t *)(uintptr_t)value);
}

static json_t *decisions_of(const json_t *answers) {
    json_t *object = json_object(), *answer;
    const char *key;
    size_t index, key_bytes;
    json_array_foreach(answers, index, answer) {
        char place[24];
        struct str name = json_member_str(answer, "name");
        struct buf text;
        buf_init(&text, sizeof place);
        buf_printf(&text, "%zu", index);
        add_decision(object, name.at ? name : buf_str(&text), answer);
        buf_release(&text);
    }
    json_object_keylen_foreach((json_t *)(uintptr_t)answers, key, key_bytes, answer)
        add_decision(object, (struct str){key, key_bytes}, answer);
    return object;
}

static json_t *read_object(const json_t *body) {
    const json_t *answers = json_member(body, "answers");
    struct answer_tree found;
    struct buf text;
    json_t *object = NULL;
    answer_tree_find(&found, body);
    buf_init(&text, BUF_UNLIMITED);
    answer_tree_add_text(&text, &found);
    if (answers)
        object = decisions_of(answers);
    else if (found.kind != ANSWER_IS_NOTHING)
        object = object_of(buf_str(&text));
    if (!object && found.kind == ANSWER_IS_CALL)
        object = calls_as_text(found.calls);
    else if (!object && found.kind != ANSWER_IS_NOTHING)
        object = whole_text(buf_str(&text));
    buf_release(&text);
    if (object && json_object_size(object) > 0) return object;
    json_decref(object);
    return NULL;
}

enum err reply_read(struct reply *ret_reply, struct str line, struct error *error) {
    struct reply reply = {0};
    enum err err = json_read(&reply.line, line, error);
    if (err != OK) return err;
    const json_t *response = json_member(reply.line, "response");
    const json_t *status = json_member(response, "status_code");
    const json_t *failure = json_member(reply.line, "error");
    bool has_failed = failure && !(json_is_object(failure) && json_object_size(failure) == 0);
    if (json_is_integer(status) && json_integer_value(status) == GOOD_STATUS && !has_failed)
        reply.body = json_member(response, "body");
    if (reply.body) reply.object = read_object(reply.body);
    if (!reply.object) reply.body = NULL;
    *ret_reply = reply;
    return OK;
}

void reply_release(struct reply *reply) {
    json_decref(reply->line);
    json_decref(reply->object);
    *reply = (struct reply){0};
}

void reply_write(struct buf *out, const struct reply *reply) {
    const json_t *text = json_object_get(reply->object, REPLY_TEXT);
    char *json = NULL;
    if (json_is_string(text))
        buf_add_str(out, json_str(text));
    else
        json = json_dumps(reply->object, JSON_INDENT(2));
    if (json) buf_add_text(out, json);
    free(json);
}

/* --- fields by their names --- */

/* The index at the beginning of a name, up to its dot or its end; SIZE_MAX: there is none. */
static size_t index_in(const char *name, size_t *ret_bytes) {
    size_t index = 0, bytes = strspn(name, "0123456789");
    if (bytes == 0 || bytes > 3 || (name[bytes] != '.' && name[bytes] != '\0')) return SIZE_MAX;
    for (size_t i = 0; i < bytes; i++) index = 10 * index + (size_t)(name[i] - '0');
    *ret_bytes = bytes;
    return index < ELEMENTS_MAX ? index : SIZE_MAX;
}

/* The member whose name is `field` up to one of its dots, an object or an array; *ret_bytes is the
 * length of that name. */
static json_t *find_outer(const json_t *object, const char *field, size_t *ret_bytes) {
    size_t unused;
    const char *dot = strchr(field, '.');
    for (; dot; dot = strchr(dot + 1, '.')) {
        json_t *outer = json_object_getn(object, field, (size_t)(dot - field));
        *ret_bytes = (size_t)(dot - field);
        if (json_is_object(outer)) return outer;
        if (json_is_array(outer) && index_in(dot + 1, &unused) != SIZE_MAX) return outer;
    }
    return NULL;
}

json_t *reply_find(const json_t *object, const char *field) {
    size_t bytes;
    for (;;) {
        json_t *value = json_object_get(object, field);
        if (value) return value;
        object = find_outer(object, field, &bytes);
        if (!object) return NULL;
        field += bytes + 1;
        if (!json_is_array(object)) continue;
        size_t index = index_in(field, &bytes);
        object = json_array_get(object, index);
        if (!field[bytes]) return (json_t *)(uintptr_t)object;
        field += bytes + 1;
    }
}

/* The own copy of an outer value in the corrections. */
static json_t *own_of(json_t *fields, const json_t *outer, const char *field, size_t bytes) {
    json_t *own = json_object_getn(fields, field, bytes);
    if (own) return own;
    own = json_deep_copy(outer);
    json_object_setn_new(fields, field, bytes, own);
    return own;
}

/* Sets what stands behind the index in an array: an object's member, or the object itself. */
static json_t *element_of(json_t *array, size_t index) {
    while (json_array_size(array) <= index) json_array_append_new(array, json_object());
    if (!json_is_object(json_array_get(array, index)))
        json_array_set_new(array, index, json_object());
    return json_array_get(array, index);
}

void reply_correct(json_t *fields, const json_t *object, const char *field, json_t *value) {
    size_t bytes;
    while (!json_object_get(object, field)) {
        const json_t *outer = find_outer(object, field, &bytes);
        if (!outer) break;
        fields = own_of(fields, outer, field, bytes);
        object = outer;
        field += bytes + 1;
        if (!json_is_array(outer)) continue;
        size_t index = index_in(field, &bytes);
        object = json_array_get(outer, index);
        if (!field[bytes]) {
            json_array_set(fields, index, value);
            return;
        }
        fields = element_of(fields, index);
        field += bytes + 1;
    }
    json_object_set(fields, field, value);
}

void reply_remove(json_t *fields, const json_t *object, const char *field) {
    if (!json_is_object(reply_find(object, field))) return;
    json_t *removed = json_pack("{s:b}", REMOVED, 1);
    reply_correct(fields, object, field, removed);
    json_decref(removed);
}

/* The depth is that of an answer, which json_read bounds. */
void reply_close(json_t *fields) { /* NOLINT(misc-no-recursion) */
    const char *key;
    json_t *value;
    json_object_foreach(fields, key, value) reply_close(value);
    for (size_t i = json_array_size(fields); i-- > 0;) {
        json_t *element = json_array_get(fields, i);
        if (json_object_get(element, REMOVED))
            json_array_remove(fields, i);
        else
            reply_close(element);
    }
}
