/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/annotation.h"

#include "base/buf.h"
#include "base/hash.h"
#include "json/json.h"
#include "label_studio/review.h"
#include "label_studio/task.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MARK "quern-"
#define REJECTED_MARK "r" /* behind MARK, for review.c; a hash has no such digit */
#define MARK_BYTES 40
#define SUM_HEX 24
#define UUID_BYTES 37

static void sum_text(struct str text, char ret_hex[SHA256_HEX_BYTES]) {
    unsigned char digest[SHA256_BYTES];
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, text.at, text.bytes);
    sha256_end(&hash, digest);
    sha256_hex(digest, ret_hex);
}

/* --- the mark --- */

/* Writes the beginning of the ids of all results: a hash of their names and values, and of the
 * review. */
static void write_mark(const json_t *results, bool is_cancelled, enum review_state review,
                       char ret_mark[MARK_BYTES]) {
    const json_t *result;
    size_t index;
    struct buf text;
    char hex[SHA256_HEX_BYTES];
    buf_init(&text, BUF_UNLIMITED);
    buf_add_text(&text, is_cancelled ? "cancelled" : "");
    if (review != REVIEW_NONE) buf_add_text(&text, review_word(review));
    json_array_foreach(results, index, result) {
        const json_t *name = json_member(result, "from_name"),
                     *value = json_member(result, "value");
        if (name) json_write_canonical(&text, name);
        if (value) json_write_canonical(&text, value);
    }
    sum_text(buf_str(&text), hex);
    buf_release(&text);
    snprintf(ret_mark, MARK_BYTES, MARK "%s%.*s-", review == REVIEW_REJECTED ? REJECTED_MARK : "",
             SUM_HEX, hex);
}

static void mark_results(json_t *results, bool is_cancelled, enum review_state review) {
    char mark[MARK_BYTES], id[MARK_BYTES + 24];
    json_t *result;
    size_t index;
    write_mark(results, is_cancelled, review, mark);
    json_array_foreach(results, index, result) {
        snprintf(id, sizeof id, "%s%zu", mark, index);
        json_object_set_new(result, "id", json_string(id));
    }
}

static bool has_mark(const json_t *annotation, enum review_state review) {
    const json_t *results = json_member(annotation, "result"), *result;
    char mark[MARK_BYTES];
    size_t index;
    write_mark(results, json_is_true(json_member(annotation, "was_cancelled")), review, mark);
    json_array_foreach(results, index, result) {
        struct str id = json_member_str(result, "id");
        if (!id.at || !str_starts_with(id, str_from(mark))) return false;
    }
    return json_array_size(results) > 0;
}

/* A review that Label Studio does not keep, or that was taken away, is no change. */
bool annotation_is_own(const json_t *annotation) {
    enum review_state state = review_read(annotation).state;
    if (has_mark(annotation, state)) return true;
    for (int other = 0; state == REVIEW_NONE && other < REVIEW_STATES; other++)
        if (has_mark(annotation, (enum review_state)other)) return true;
    return false;
}

/* --- results --- */

static void add_own(json_t *results, const json_t *config, const char *name, const char *type,
                    const char *member, json_t *value) {
    if (json_object_get(config, name))
        json_array_append_new(results,
                              json_pack("{s:s,s:s,s:s,s:{s:O}}", "from_name", name, "to_name",
                                        FORM_TEXT, "type", type, "value", member, value));
    json_decref(value);
}

/* The comment's control names the curator. */
static json_t *make_comment(const json_t *judgement) {
    struct str comment = json_member_str(judgement, "comment");
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    buf_add_str(&text, json_member_str(judgement, "curator"));
    buf_add_text(&text, " on quern");
    if (json_is_true(json_member(judgement, "flagged"))) buf_add_text(&text, ", flagged");
    if (comment.bytes > 0) {
        buf_add_text(&text, ": ");
        buf_add_str(&text, comment);
    }
    json_t *string = json_stringn(text.at, text.bytes);
    buf_release(&text);
    return string;
}

static json_t *make_results(const struct annotation_wish *wish, bool is_cancelled) {
    json_t *results = json_array(), *object = json_deep_copy(wish->answer), *value;
    const json_t *rating = json_member(wish->judgement, "rating");
    const char *key;
    json_object_foreach(json_member(wish->judgement, "fields"), key, value)
        json_object_set(object, key, value);
    if (!is_cancelled) task_add_results(results, wish->form, object);
    if (json_is_integer(rating))
        add_own(results, wish->config, FORM_STARS, "rating", "rating", json_deep_copy(rating));
    json_t *texts = json_array();
    json_array_append_new(texts, make_comment(wish->judgement));
    add_own(results, wish->config, FORM_COMMENT, "textarea", "text", texts);
    json_decref(object);
    return results;
}

static json_t *make_unique_id(const struct annotation_wish *wish) {
    char hex[SHA256_HEX_BYTES], uuid[UUID_BYTES];
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    buf_printf(&text, "%s %" PRId64 " ", wish->batch, wish->project);
    buf_add_str(&text, json_member_str(wish->judgement, "id"));
    sum_text(buf_str(&text), hex);
    buf_release(&text);
    snprintf(uuid, sizeof uuid, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
             hex + 20);
    return json_string(uuid);
}

json_t *annotation_make(const struct annotation_wish *wish) {
    bool is_cancelled = str_is(json_member_str(wish->judgement, "verdict"), "skipped");
    enum review_state review = review_of_judgement(wish->judgement);
    json_t *results = make_results(wish, is_cancelled);
    if (json_array_size(results) == 0) {
        json_decref(results);
        return NULL;
    }
    mark_results(results, is_cancelled, review);
    json_t *annotation = json_object();
    json_object_set_new(annotation, "result", results);
    json_object_set_new(annotation, "was_cancelled", json_boolean(is_cancelled));
    if (review != REVIEW_NONE)
        json_object_set_new(annotation, "last_action", json_string(review_word(review)));
    json_object_set_new(annotation, "unique_id", make_unique_id(wish));
    return annotation;
}
