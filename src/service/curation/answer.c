/* SPDX-License-Identifier: Apache-2.0 */
#include "curation/answer.h"

#include "answer/answer_tree.h"
#include "base/no_memory.h"
#include "json/json.h"
#include "json/span.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOOD_STATUS 200
#define PREDICATE_IS_TRUE 0.5
#define TEXT_FIELD ".text"
#define TREE_COST 8 /* as a body costs an engine */
#define TREE_BYTES_LEAST ((size_t)8 << 20)

/* --- finding --- */

/* The object that a text is; NULL if it is none. */
static json_t *object_in(struct str text, size_t *room) {
    json_t *value;
    struct error error;
    text = json_span_unfenced(text);
    if (text.bytes == 0 || *text.at != '{' || json_read_within(&value, text, room, &error) != OK)
        return NULL;
    if (json_is_object(value)) return value;
    json_decref(value);
    return NULL;
}

static void set_place(struct answer *answer, json_t *place, const char *member,
                      enum answer_kind kind) {
    answer->kind = kind;
    answer->place = place;
    answer->member = member;
    struct str text = json_member_str(place, member);
    answer->object = object_in(text, &answer->room);
    if (kind == ANSWER_TEXT) answer->text = text;
}

/* Makes the answer a text of the tree where it is another value, such as a list of parts or
 * arguments that are an object: corrections are about texts. */
static void make_text(const struct answer_tree *found) {
    struct buf text;
    if (json_is_string(json_member(found->place, found->member))) return;
    buf_init(&text, BUF_UNLIMITED);
    answer_tree_add_text(&text, found);
    json_object_set_new_nocheck(found->place, found->member,
                                json_stringn_nocheck(text.at ? text.at : "", text.bytes));
    buf_release(&text);
}

static void find_text(struct answer *answer, const json_t *body) {
    struct answer_tree found;
    answer_tree_find(&found, body);
    answer->calls = found.calls;
    answer->is_refusal = found.kind == ANSWER_IS_REFUSAL;
    if (!json_member(found.place, found.member)) return;
    make_text(&found);
    set_place(answer, found.place, found.member,
              found.kind == ANSWER_IS_CALL ? ANSWER_CALL : ANSWER_TEXT);
}

/* --- decisions --- */

typedef void (*question_fn)(void *context, const char *name, json_t *question);

/* Calls `each` for every question of a decision's answers, an array or an object. */
static void each_question(const json_t *answers, question_fn each, void *context) {
    size_t index;
    json_t *question;
    const char *key;
    char number[24];
    json_array_foreach(answers, index, question) {
        snprintf(number, sizeof number, "%zu", index);
        const char *name = json_string_value(json_member(question, "name"));
        each(context, name ? name : number, question);
    }
    json_object_foreach((json_t *)(uintptr_t)answers, key, question) each(context, key, question);
}

static json_t *truth_of(const json_t *question) {
    json_t *share = json_member(question, "probability");
    return share ? share : json_member(question, "noul");
}

/* The most probable level of a score. */
static int64_t level_of(const json_t *question) {
    const json_t *shares = json_member(question, "probabilities");
    double most = -1;
    int64_t level, top = llround(json_number_value(json_member(question, "score")));
    size_t index;
    const char *key;
    json_t *value;
    json_array_foreach(shares, index, value) {
        double share = json_number_value(json_member(value, "probability"));
        if (share < 0) break;
        if (share <= most) continue;
        most = share;
        top = json_integer_value(json_member(value, "value"));
    }
    json_object_foreach((json_t *)(uintptr_t)shares, key, value) {
        if (json_number_value(value) < 0) break;
        if (json_number_value(value) <= most) continue;
        most = json_number_value(value);
        top = str_to_i64(str_from(key), &level) ? level : 0;
    }
    return top;
}

static void add_question(void *context, const char *name, json_t *question) {
    struct answer *answer = context;
    json_t *value = NULL;
    if (json_is_number(truth_of(question)))
        value = json_boolean(json_number_value(truth_of(question)) >= PREDICATE_IS_TRUE);
    else if (json_member(question, "choice"))
        value = json_incref(json_member(question, "choice"));
    else if (json_is_number(json_member(question, "score")))
        value = json_integer(level_of(question));
    if (value) json_object_set_new_nocheck(answer->object, name, value);
}

static void find_decisions(struct answer *answer, json_t *answers) {
    answer->kind = ANSWER_DECISIONS;
    answer->place = answers;
    answer->object = json_object();
    if (!answer->object) no_memory();
    each_question(answers, add_question, answer);
}

/* --- reading --- */

size_t answer_tree_room(size_t text_bytes) {
    return text_bytes > TREE_BYTES_LEAST / TREE_COST ? TREE_COST * text_bytes : TREE_BYTES_LEAST;
}

void answer_read(struct answer *ret_answer, struct str text) {
    struct answer answer = {.kind = ANSWER_NONE};
    struct error error;
    *ret_answer = answer;
    answer.room = answer_tree_room(text.bytes);
    if (json_read_within(&answer.line, text, &answer.room, &error) != OK) return;
    const json_t *response = json_member(answer.line, "response");
    const json_t *body = json_member(response, "body");
    json_t *answers = json_member(body, "answers");
    if (json_integer_value(json_member(response, "status_code")) == GOOD_STATUS) {
        if (json_is_array(answers) || json_is_object(answers))
            find_decisions(&answer, answers);
        else
            find_text(&answer, body);
    }
    *ret_answer = answer;
}

void answer_release(struct answer *answer) {
    json_decref(answer->object);
    json_decref(answer->line);
    *answer = (struct answer){.kind = ANSWER_NONE};
}

void answer_write_object(struct buf *buf, const struct answer *answer) {
    if (!answer->object)
        buf_add_text(buf, "null");
    else if (answer->kind == ANSWER_DECISIONS)
        json_write(buf, answer->object);
    else /* as it was written: a number keeps its digits */
        json_span_add_ascii(buf,
                            json_span_unfenced(json_member_str(answer->place, answer->member)));
}

/* --- corrections --- */

/* Puts the corrected value, if `context` has one, into the answer to a question. */
static void correct_question(void *context, const char *name, json_t *question) {
    json_t *value = json_object_get(context, name);
    if (!value) return;
    if (json_member(question, "choice")) {
        json_object_set_nocheck(question, "choice", value);
    } else if (json_member(question, "score")) {
        json_object_set_nocheck(question, "score", value);
    } else if (json_is_boolean(value)) {
        const char *member = json_member(question, "noul") ? "noul" : "probability";
        json_object_set_new_nocheck(question, member, json_real(json_is_true(value) ? 1 : 0));
    }
}

/* Appends a value as people write it: characters outside ASCII as they are, and a number with the
 * fewest digits that read back as the same number. */
static void write_plain(struct buf *out, const json_t *value) {
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY;
    struct error error;
    json_t *again = NULL;
    char *text = json_dumps(value, flags | JSON_REAL_PRECISION(15));
    bool same = text && json_read(&again, str_from(text), &error) == OK && json_equal(again, value);
    if (!same) {
        free(text);
        text = json_dumps(value, flags);
    }
    if (!text) no_memory();
    buf_add_text(out, text);
    json_decref(again);
    free(text);
}

/* Appends `whole`, in which `object` lies, with the values of `fields` in place of its own. Further
 * fields go behind its last member; all other bytes stay as they are. Removes the fields that it
 * finds from `fields`. */
static void splice(struct buf *out, struct str whole, struct str object, json_t *fields) {
    struct json_span_iter iter;
    struct str key, value;
    struct buf name;
    json_t *with;
    const char *text, *copied = whole.at, *end = object.at + 1; /* behind the last value */
    bool is_first = true;
    buf_init(&name, BUF_UNLIMITED);
    for (json_span_enter(&iter, object); json_span_member(&iter, &key, &value);) {
        is_first = false;
        end = value.at + value.bytes;
        buf_clear(&name);
        json_span_decode(&name, key);
        with = json_object_get(fields, name.at ? name.at : "");
        if (!with) continue;
        buf_add(out, copied, (size_t)(value.at - copied));
        write_plain(out, with);
        json_object_del(fields, name.at);
        copied = end;
    }
    buf_add(out, copied, (size_t)(end - copied));
    json_object_foreach(fields, text, with) {
        if (!is_first) buf_add_byte(out, ',');
        is_first = false;
        json_write_utf8_string(out, str_from(text));
        buf_add_byte(out, ':');
        write_plain(out, with);
    }
    buf_add(out, end, (size_t)(whole.at + whole.bytes - end));
    buf_release(&name);
}

/* Replaces the text of the answer. What a curator puts in place of a refusal is a content. */
static void set_text(struct answer *answer, struct str text) {
    if (answer->is_refusal) json_object_set_new_nocheck(answer->place, "refusal", json_null());
    if (answer->is_refusal) answer->member = "content";
    answer->is_refusal = false;
    json_object_set_new_nocheck(answer->place, answer->member,
                                json_stringn_nocheck(text.bytes ? text.at : "", text.bytes));
    json_decref(answer->object);
    set_place(answer, answer->place, answer->member, answer->kind);
}

static void correct_text(struct answer *answer, json_t *fields) {
    struct buf text;
    struct str whole = json_member_str(answer->place, answer->member);
    const json_t *new_text = json_object_get(fields, TEXT_FIELD);
    if (answer->kind == ANSWER_TEXT && json_is_string(new_text)) {
        set_text(answer, json_str(new_text));
        return;
    }
    buf_init(&text, BUF_UNLIMITED);
    if (answer->object)
        splice(&text, whole, json_span_unfenced(whole), fields);
    else
        write_plain(&text, fields);
    set_text(answer, buf_str(&text));
    buf_release(&text);
}

void answer_correct(struct answer *answer, struct str fields) {
    const char *name;
    struct error error;
    json_t *tree, *value;
    if (answer->kind == ANSWER_NONE || json_read(&tree, fields, &error) != OK) return;
    if (answer->kind != ANSWER_DECISIONS) {
        correct_text(answer, tree);
    } else {
        each_question(answer->place, correct_question, tree);
        json_object_foreach(tree, name, value) json_object_set_nocheck(answer->object, name, value);
    }
    json_decref(tree);
}
