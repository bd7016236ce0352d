/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/short_request.h"

#include "answer/answer_tree.h"
#include "batch/request_key.h"
#include "json/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PROBABILITY ".probability" /* stands behind a predicate's name: result_line.h */
#define STOPS_MAX 4                /* as many as every server takes */
#define ID_BYTES_MAX ((size_t)64 << 10)

/* --- decisions --- */

/* Whether the field is this question's answer, or its probability. */
static bool is_asked_by(const char *field, const char *name) {
    size_t bytes = strlen(name);
    return strncmp(field, name, bytes) == 0 &&
           (!field[bytes] || strcmp(field + bytes, PROBABILITY) == 0);
}

/* Leaves the one question of the field. */
static bool shorten_decision(json_t *body, const char *field) {
    json_t *questions = json_member(body, "questions"), *question;
    size_t i;
    json_array_foreach(questions, i, question) {
        const char *name = json_string_value(json_member(question, "name"));
        if (!name || !is_asked_by(field, name)) continue;
        return json_array_size(questions) > 1 &&
               json_object_set_new(body, "questions", json_pack("[O]", question)) == 0;
    }
    return false;
}

/* --- JSON --- */

/* The largest number that a schema allows. */
static double bound_of_schema(const json_t *schema) {
    const json_t *maximum = json_member(schema, "maximum"), *value;
    const json_t *below = json_member(schema, "exclusiveMaximum");
    double bound = INFINITY, largest = -INFINITY;
    size_t i, count = json_array_size(json_member(schema, "enum"));
    if (json_is_number(maximum)) bound = json_number_value(maximum);
    if (json_is_number(below)) bound = fmin(bound, json_number_value(below));
    json_array_foreach(json_member(schema, "enum"), i, value) {
        if (json_is_number(value)) largest = fmax(largest, json_number_value(value));
    }
    return count > 0 ? fmin(bound, largest) : bound;
}

static bool is_number_schema(const json_t *schema) {
    struct str type = json_member_str(schema, "type");
    return str_is(type, "integer") || str_is(type, "number");
}

/* Appends a member's name as an answer has it, with its quotes. */
static json_t *quoted(const char *name) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    json_write_utf8_string(&text, str_from(name));
    json_t *value = json_stringn(text.at, text.bytes);
    buf_release(&text);
    return value;
}

/* The names behind the field, which is the first member; NULL if it is not, or no number. */
static json_t *stops_behind(const json_t *properties, const char *field) {
    void *at = json_object_iter((json_t *)(uintptr_t)properties);
    if (!at || strcmp(json_object_iter_key(at), field) != 0 ||
        !is_number_schema(json_object_iter_value(at)))
        return NULL;
    json_t *stops = json_array();
    while (json_array_size(stops) < STOPS_MAX &&
           (at = json_object_iter_next((json_t *)(uintptr_t)properties, at)))
        json_array_append_new(stops, quoted(json_object_iter_key(at)));
    if (json_array_size(stops) > 0) return stops;
    json_decref(stops);
    return NULL;
}

static bool has_several_answers(const json_t *body) {
    const json_t *count = json_member(body, "n");
    return (count && json_integer_value(count) != 1) || json_member(body, "best_of");
}

static bool shorten_json(json_t *body, const char *field, bool is_remote, double *ret_bound) {
    const json_t *schema =
        json_member(json_member(json_member(body, "response_format"), "json_schema"), "schema");
    const json_t *properties = json_member(schema, "properties");
    *ret_bound = bound_of_schema(json_member(properties, field));
    if (is_remote || has_several_answers(body) || json_member(body, "stop") ||
        json_member(body, "stop_token_ids") || json_member(body, "tools"))
        return false;
    json_t *stops = stops_behind(properties, field);
    return stops && json_object_set_new(body, "stop", stops) == 0;
}

bool short_request_write(struct buf *out, struct str line, const char *field, bool is_remote,
                         double *ret_bound) {
    json_t *whole;
    struct error ignored;
    double bound = INFINITY;
    bool is_short = false;
    *ret_bound = INFINITY;
    if (json_read(&whole, line, &ignored) != OK) return false;
    json_t *body = json_member(whole, "body");
    if (json_is_array(json_member(body, "questions")))
        is_short = shorten_decision(body, field);
    else if (json_is_object(body))
        is_short = shorten_json(body, field, is_remote, &bound);
    is_short = is_short && batch_request_is_determined(line);
    if (is_short) json_write(out, whole);
    json_decref(whole);
    *ret_bound = bound;
    return is_short;
}

/* --- answers --- */

/* The field of an answer that ended before its next member, as in `{"score": 7, `. */
static double read_cut(struct str result, const char *field) {
    double value = NAN;
    json_t *whole, *answer = NULL;
    struct answer_tree found;
    struct buf text;
    struct error ignored;
    if (json_read(&whole, result, &ignored) != OK) return NAN;
    answer_tree_find(&found, json_member(json_member(whole, "response"), "body"));
    buf_init(&text, BUF_UNLIMITED);
    if (found.choice && str_is(json_member_str(found.choice, "finish_reason"), "stop"))
        answer_tree_add_text(&text, &found);
    while (text.bytes > 0 && strchr(", \t\r\n", text.at[text.bytes - 1]))
        buf_truncate(&text, text.bytes - 1);
    buf_add_byte(&text, '}');
    if (json_read(&answer, buf_str(&text), &ignored) == OK &&
        json_is_number(json_member(answer, field)))
        value = json_number_value(json_member(answer, field));
    json_decref(answer);
    buf_release(&text);
    json_decref(whole);
    return value;
}

enum err short_request_read(struct str result, const char *field, bool is_short, double *ret_value,
                            struct result_usage *ret_usage, struct error *error) {
    struct result_line line;
    struct buf id;
    buf_init(&id, ID_BYTES_MAX);
    enum err err = result_line_read(&line, result, true, &id, error);
    if (err == OK) {
        const json_t *value = json_object_get(line.values, field);
        *ret_value = json_is_number(value)          ? json_number_value(value)
                     : is_short && line.is_answered ? read_cut(result, field)
                                                    : (double)NAN;
        *ret_usage = line.usage;
        result_line_release(&line);
    }
    buf_release(&id);
    return err;
}
