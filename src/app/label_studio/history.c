/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/history.h"

#include "base/no_memory.h"
#include "json/json.h"
#include "label_studio/curator.h"
#include "label_studio/form.h"
#include "label_studio/review.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct history {
    const struct history_wish *wish;
    struct history_report *report;
    struct buf *out;
    json_t *users;
    struct str config; /* the project's, as XML */
};

/* --- one annotation --- */

/* Whether several options of the control may be chosen at a time, by the tag of its name in the
 * config's text: the parsed config does not tell. */
static bool takes_several(const struct history *history, struct str name) {
    struct buf named;
    bool takes = false;
    buf_init(&named, BUF_UNLIMITED);
    buf_printf(&named, "name=\"%.*s\"", STR_ARGS(name));
    size_t at = str_find(history->config, buf_str(&named), 0);
    if (at != SIZE_MAX) {
        size_t from = at, end = str_find_byte(history->config, '>', at);
        while (from > 0 && history->config.at[from] != '<') from--;
        if (end == SIZE_MAX) end = history->config.bytes;
        const struct str tag = {history->config.at + from, end - from};
        takes = str_find(tag, STR("choice=\"multiple\""), 0) != SIZE_MAX;
    }
    buf_release(&named);
    return takes;
}

/* The value of a result; NULL: it is one of a region, or of an unknown kind. The caller owns it. */
static json_t *value_of(const struct history *history, const json_t *result) {
    const json_t *value = json_member(result, "value");
    struct str name = json_member_str(result, "from_name");
    const json_t *choices = json_member(value, "choices"), *text = json_member(value, "text");
    const json_t *own = json_member(value, "number");
    if (!own) own = json_member(value, "rating");
    if (json_member(value, "start") || json_member(value, "x")) return NULL;
    if (json_is_number(own)) return json_deep_copy(own);
    const json_t *list = json_is_array(choices) ? choices : text;
    if (!json_is_array(list)) return json_is_string(text) ? json_deep_copy(text) : NULL;
    if (json_array_size(list) == 1 && !takes_several(history, name))
        return json_deep_copy(json_array_get(list, 0));
    return json_deep_copy(list);
}

static json_t *values_of(struct history *history, const json_t *annotation) {
    json_t *values = json_object();
    const json_t *result;
    size_t index;
    json_array_foreach(json_member(annotation, "result"), index, result) {
        struct str name = json_member_str(result, "from_name");
        if (str_is(name, FORM_STARS) || str_is(name, FORM_COMMENT))
            continue; /* they are about no answer */
        json_t *value = name.at ? value_of(history, result) : NULL;
        if (value)
            json_object_setn_new(values, name.at, name.bytes, value);
        else
            history->report->left_out++;
    }
    return values;
}

static void add_annotation(struct history *history, const char *custom_id, const json_t *task,
                           const json_t *annotation) {
    char curator[CURATOR_BYTES];
    bool is_skipped = json_is_true(json_member(annotation, "was_cancelled")) ||
                      review_read(annotation).state == REVIEW_REJECTED;
    json_t *line = json_object();
    curator_name(history->users, annotation, curator);
    json_object_set_new(line, "custom_id", json_string(custom_id));
    json_object_set_new(line, "curator", json_string(curator));
    json_object_set(line, "created", json_object_get(annotation, "updated_at"));
    json_object_set_new(line, "judgement",
                        is_skipped ? json_null() : values_of(history, annotation));
    json_object_set(line, "task", json_object_get(task, "id"));
    json_object_set(line, "annotation", json_object_get(annotation, "id"));
    json_object_set_new(line, "ground_truth",
                        json_boolean(json_is_true(json_member(annotation, "ground_truth"))));
    history->report->skipped += is_skipped;
    history->report->annotations++;
    json_write(history->out, line);
    buf_add_byte(history->out, '\n');
    json_decref(line);
}

/* --- tasks --- */

/* Texts of times compare, because one server writes one form. */
static int by_time(const void *a, const void *b) {
    const json_t *const *left = a, *const *right = b;
    return str_compare(json_member_str(*left, "updated_at"), json_member_str(*right, "updated_at"));
}

static void name_task(struct history *history, const json_t *task, struct buf *ret_name) {
    const char *field = history->wish->id_field ? history->wish->id_field : "custom_id";
    const json_t *own = json_member(json_member(task, "data"), field);
    struct str id = json_member_str(json_member(task, "meta"), "custom_id");
    if (id.at && !history->wish->id_field) {
        buf_add_str(ret_name, id);
    } else if (json_is_string(own)) {
        buf_add_str(ret_name, json_str(own));
    } else if (json_is_integer(own)) {
        buf_printf(ret_name, "%" PRId64, (int64_t)json_integer_value(own));
    } else {
        buf_printf(ret_name, "task-%" PRId64, (int64_t)json_integer_value(json_member(task, "id")));
        history->report->unnamed++;
    }
}

static void add_task(struct history *history, const json_t *task) {
    const json_t *given = json_member(task, "annotations");
    size_t count = json_array_size(given);
    struct buf name;
    if (count == 0) return;
    const json_t **ordered = calloc(count, sizeof *ordered);
    if (!ordered) no_memory();
    buf_init(&name, BUF_UNLIMITED);
    name_task(history, task, &name);
    for (size_t i = 0; i < count; i++) ordered[i] = json_array_get(given, i);
    qsort(ordered, count, sizeof *ordered, by_time);
    for (size_t i = 0; i < count; i++) add_annotation(history, name.at, task, ordered[i]);
    history->report->tasks++;
    buf_release(&name);
    free(ordered);
}

static enum err take_page(void *context, const json_t *tasks, struct error *error) {
    struct history *history = context;
    const json_t *task;
    size_t index;
    json_array_foreach(tasks, index, task) add_task(history, task);
    return history->out->overflowed ? err_set(error, ERR_LIMIT, "the annotations are too many")
                                    : OK;
}

enum err history_run(struct studio *studio, const struct history_wish *wish, struct buf *out,
                     struct history_report *ret_report, struct error *error) {
    struct history history = {.wish = wish, .report = ret_report, .out = out};
    json_t *project = NULL;
    *ret_report = (struct history_report){0};
    enum err err = studio_get_project(studio, wish->project, &project, error);
    if (err != OK) return err;
    history.config = json_member_str(project, "label_config");
    err = studio_get_users(studio, &history.users, error);
    if (err == ERR_DENIED || err == ERR_NOT_FOUND) err = OK; /* curators are numbers then */
    if (err == OK)
        err =
            studio_each_task(studio, wish->project, 0, STUDIO_HISTORY, take_page, &history, error);
    json_decref(history.users);
    json_decref(project);
    return err;
}
