/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/answer_match.h"

#include "compare/result_line.h"
#include "json/json.h"

#include <string.h>

#define ID_BYTES_MAX ((size_t)64 << 10)

/* Members that each answer has anew. */
static bool is_new(const char *name) {
    static const char *const names[] = {"id",         "created",      "created_at",
                                        "request_id", "completed_at", "system_fingerprint",
                                        "usage",      "call_id"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* Takes these members out. json_read bounds the depth. */
static void strip(json_t *value) {
    const char *name;
    json_t *member;
    void *next;
    size_t i;
    json_object_foreach_safe(value, next, name, member) {
        if (is_new(name))
            json_object_del(value, name);
        else
            strip(member);
    }
    json_array_foreach(value, i, member) strip(member);
}

/* The response and the error of a result, without these members. */
static enum err read_bare(struct str text, json_t **ret_value, struct error *error) {
    enum err err = json_read(ret_value, text, error);
    if (err == OK) strip(*ret_value);
    return err;
}

static bool ends_in_probability(const char *name) {
    return str_ends_with(str_from(name), STR(".probability"));
}

static void drop_probabilities(json_t *values) {
    const char *name;
    json_t *member;
    void *next;
    json_object_foreach_safe(values, next, name, member) {
        (void)member;
        if (ends_in_probability(name)) json_object_del(values, name);
    }
}

/* Values of both lines, if both have an answer. */
static enum err mean_the_same(struct str one, struct str other, bool *ret_same,
                              struct error *error) {
    struct result_line a, b;
    struct buf id;
    buf_init(&id, ID_BYTES_MAX);
    *ret_same = false;
    enum err err = result_line_read(&a, one, true, &id, error);
    if (err == OK) {
        err = result_line_read(&b, other, true, &id, error);
        if (err == OK) {
            drop_probabilities(a.values);
            drop_probabilities(b.values);
            *ret_same = a.is_answered && b.is_answered && a.is_json && b.is_json &&
                        json_equal(a.values, b.values);
            result_line_release(&b);
        }
        result_line_release(&a);
    }
    buf_release(&id);
    return err;
}

enum err answer_match(struct str one, struct str other, enum answer_match *ret_match,
                      struct error *error) {
    json_t *a = NULL, *b = NULL;
    bool is_same = false;
    enum err err = read_bare(one, &a, error);
    if (err == OK) err = read_bare(other, &b, error);
    bool is_equal = err == OK && json_equal(a, b);
    json_decref(a);
    json_decref(b);
    if (err == OK && !is_equal) err = mean_the_same(one, other, &is_same, error);
    *ret_match = is_equal ? ANSWER_BIT_EQUAL : is_same ? ANSWER_SAME_MEANING : ANSWER_DIFFERS;
    return err;
}
