/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/judgement.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "json/json.h"
#include "label_studio/reply.h"
#include "label_studio/review.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_HEX 32
#define COMMENT_BYTES_MAX ((size_t)16 << 10) /* limit for a judgement */
#define EXACT_MAX 9007199254740992.0         /* 2^53: every integer up to it is exact as a real */

bool annotation_key(const json_t *object, char *ret_key, size_t bytes) {
    const json_t *id = json_member(object, "id");
    struct str at = json_member_str(object, "updated_at");
    bool is_whole = at.bytes > 0 && at.bytes <= 64 && json_is_array(json_member(object, "result"));
    if (!json_is_integer(id) || json_integer_value(id) <= 0 || !is_whole) return false;
    enum review_state review = review_read(object).state;
    snprintf(ret_key, bytes, "%" PRId64 " %.*s%s%s", (int64_t)json_integer_value(id), STR_ARGS(at),
             review == REVIEW_NONE ? "" : " ", review == REVIEW_NONE ? "" : review_word(review));
    return true;
}

static json_t *make_id(const char *studio, const char *key) {
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES], id[JUDGEMENT_ID_BYTES];
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, studio, strlen(studio) + 1);
    sha256_add(&hash, key, strlen(key));
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    snprintf(id, sizeof id, "ls-%.*s", ID_HEX, hex);
    return json_string(id);
}

/* --- values --- */

static bool is_same(const json_t *a, const json_t *b) {
    struct buf texts[2];
    const json_t *values[] = {a, b};
    if (!a || !b) return a == b;
    for (size_t i = 0; i < 2; i++) {
        buf_init(&texts[i], BUF_UNLIMITED);
        json_write_canonical(&texts[i], values[i]);
    }
    bool is_equal = str_equals(buf_str(&texts[0]), buf_str(&texts[1]));
    buf_release(&texts[0]);
    buf_release(&texts[1]);
    return is_equal;
}

/* The value of the option that has this text. */
static json_t *find_option(const struct control *control, const json_t *text) {
    const json_t *option;
    json_t *found = NULL;
    size_t index;
    json_array_foreach(control->options, index, option) {
        char *own = control_option_text(option);
        if (!found && str_is(json_str(text), own)) found = json_incref((json_t *)(uintptr_t)option);
        free(own);
    }
    return found;
}

static json_t *read_choices(const struct control *control, const json_t *value) {
    const json_t *choices = json_member(value, "choices"), *text;
    json_t *array = json_array();
    size_t index;
    json_array_foreach(choices, index, text) {
        json_t *option = find_option(control, text);
        if (option) json_array_append_new(array, option);
    }
    if (control->kind == CONTROL_CHOICES) return array;
    json_t *first = json_incref(json_array_get(array, 0));
    json_decref(array);
    return first;
}

static json_t *read_number(const struct control *control, const json_t *number) {
    double value = json_number_value(number);
    bool is_whole = floor(value) == value && fabs(value) <= EXACT_MAX;
    if (!json_is_number(number)) return NULL;
    if (is_whole && (control->is_integer || control->kind == CONTROL_RATING))
        return json_integer((json_int_t)value);
    return json_deep_copy(number);
}

/* The field's value that a result of an annotation gives; NULL: none. */
static json_t *read_value(const struct control *control, const json_t *value) {
    const json_t *text = json_member(value, "text");
    switch (control->kind) {
    case CONTROL_CHOICE:
    case CONTROL_CHOICES: return read_choices(control, value);
    case CONTROL_NUMBER: return read_number(control, json_member(value, "number"));
    case CONTROL_RATING: return read_number(control, json_member(value, "rating"));
    case CONTROL_TEXT:
        if (json_is_array(text)) text = json_array_get(text, 0);
        return json_is_string(text) ? json_incref((json_t *)(uintptr_t)text) : NULL;
    case CONTROL_TEXTS: return json_is_array(text) ? json_deep_copy(text) : NULL;
    case CONTROL_REMOVE:
    case CONTROL_KINDS: break;
    }
    return NULL;
}

/* Takes objects out of their arrays, once all other values are there: they go by place. */
static void remove_objects(const struct form *form, const json_t *results, const json_t *answer,
                           json_t *fields) {
    const json_t *result;
    size_t index;
    json_array_foreach(results, index, result) {
        const struct control *control = form_find(form, json_member_str(result, "from_name"));
        const json_t *choices = json_member(json_member(result, "value"), "choices");
        if (control && control->kind == CONTROL_REMOVE && json_array_size(choices) > 0)
            reply_remove(fields, answer, control->field);
    }
    reply_close(fields);
}

/* Puts the values that differ from the answer's into `fields`. */
static void read_fields(const struct form *form, const json_t *results, const json_t *answer,
                        json_t *fields) {
    const json_t *result;
    size_t index;
    json_array_foreach(results, index, result) {
        const struct control *control = form_find(form, json_member_str(result, "from_name"));
        json_t *value = control ? read_value(control, json_member(result, "value")) : NULL;
        if (value && !is_same(value, reply_find(answer, control->field)))
            reply_correct(fields, answer, control->field, value);
        json_decref(value);
    }
    remove_objects(form, results, answer, fields);
}

/* The value of a result of one of the controls that each project has; borrowed. */
static const json_t *find_own(const json_t *results, const char *name, const char *member) {
    const json_t *result, *found = NULL;
    size_t index;
    json_array_foreach(results, index,
                       result) if (str_is(json_member_str(result, "from_name"), name)) found =
        json_member(json_member(result, "value"), member);
    return found;
}

/* A comment without control characters that quern refuses, cut to COMMENT_BYTES_MAX. */
static json_t *clean_comment(struct str text) {
    struct buf clean;
    buf_init(&clean, COMMENT_BYTES_MAX + 4);
    for (size_t at = 0, bytes; at < text.bytes; at += bytes) {
        uint32_t code_point;
        bytes = utf8_decode(text, at, &code_point);
        bool is_control = code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0);
        if (clean.bytes + bytes > COMMENT_BYTES_MAX) break;
        if (is_control && code_point != '\n' && code_point != '\t')
            buf_add_byte(&clean, ' ');
        else
            buf_add(&clean, text.at + at, bytes);
    }
    json_t *comment = json_stringn(clean.at, clean.bytes);
    buf_release(&clean);
    return comment;
}

/* The comment of an annotation that was rejected says so. */
static json_t *comment_of(const json_t *results, bool is_rejected) {
    const json_t *given = find_own(results, FORM_COMMENT, "text");
    if (json_is_array(given)) given = json_array_get(given, 0);
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    if (is_rejected) buf_add_text(&text, "rejected in review");
    if (is_rejected && json_str(given).bytes > 0) buf_add_text(&text, ": ");
    buf_add_str(&text, json_str(given));
    json_t *comment = text.bytes > 0 ? clean_comment(buf_str(&text)) : NULL;
    buf_release(&text);
    return comment;
}

json_t *judgement_make(const struct form *form, const struct annotation *annotation) {
    const json_t *results = json_member(annotation->object, "result");
    const json_t *stars = find_own(results, FORM_STARS, "rating");
    json_t *body = json_object(), *fields = json_object();
    bool is_rejected = review_read(annotation->object).state == REVIEW_REJECTED;
    bool is_skipped = is_rejected || json_is_true(json_member(annotation->object, "was_cancelled"));
    json_t *comment = comment_of(results, is_rejected);
    char key[128] = "";
    const char *verdict = "skipped";
    (void)annotation_key(annotation->object, key, sizeof key);
    if (!is_skipped) {
        read_fields(form, results, json_member(annotation->meta, "answer"), fields);
        verdict = json_object_size(fields) > 0 ? "corrected" : "accepted";
    }
    json_object_set(body, "custom_id", json_member(annotation->meta, "custom_id"));
    json_object_set_new(body, "curator", json_string(annotation->curator));
    json_object_set_new(body, "id", make_id(annotation->studio, key));
    json_object_set_new(body, "verdict", json_string(verdict));
    json_object_set_new(body, "flagged", json_boolean(is_rejected));
    if (json_object_size(fields) > 0) json_object_set(body, "fields", fields);
    if (json_is_integer(stars) && json_integer_value(stars) >= 1 && json_integer_value(stars) <= 5)
        json_object_set(body, "rating", (json_t *)(uintptr_t)stars);
    if (comment) json_object_set_new(body, "comment", comment);
    json_decref(fields);
    return body;
}

bool judgement_differs(const json_t *a, const json_t *b) {
    const json_t *judgements[] = {a, b};
    json_t *fields[2];
    for (size_t i = 0; i < 2; i++)
        if (str_is(json_member_str(judgements[i], "verdict"), "skipped")) return false;
    for (size_t i = 0; i < 2; i++) {
        const json_t *given = json_member(judgements[i], "fields");
        fields[i] = given ? json_incref((json_t *)(uintptr_t)given) : json_object();
    }
    bool is_other = !is_same(fields[0], fields[1]);
    json_decref(fields[0]);
    json_decref(fields[1]);
    return is_other;
}
