/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/studio_pull.h"

#include "base/no_memory.h"
#include "client/objects.h"
#include "json/json.h"
#include "label_studio/annotation.h"
#include "label_studio/curator.h"
#include "label_studio/judgement.h"
#include "label_studio/kept_judgements.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 128
#define VALUE_BYTES 80 /* limit for a judgement's fields in a sentence */

struct pull {
    struct studio *studio;
    struct link *link;
    const struct studio_pull_wish *wish;
    struct studio_pull_report *report;
    json_t *users;
    struct kept_judgements judgements;
};

/* --- conflicts --- */

static void write_fields(const json_t *judgement, char *ret_text, size_t bytes) {
    const json_t *fields = json_member(judgement, "fields");
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    if (fields)
        json_write(&text, fields);
    else
        buf_add_text(&text, "as answered");
    object_copy_text(buf_str(&text), ret_text, bytes);
    buf_release(&text);
}

/* Shows a conflict, if one exists. True if the annotation is held back. */
static bool check_conflict(struct pull *pull, const json_t *judgement) {
    const char *curator = "";
    char mine[VALUE_BYTES], theirs[VALUE_BYTES], sentence[ERROR_TEXT_BYTES];
    const json_t *other = kept_judgements_conflict(&pull->judgements, judgement, &curator);
    if (!other || pull->wish->preference == STUDIO_PULL_LABEL_STUDIO) return false;
    bool is_held = pull->wish->preference == STUDIO_PULL_QUERN;
    write_fields(other, mine, sizeof mine);
    write_fields(judgement, theirs, sizeof theirs);
    snprintf(sentence, sizeof sentence, "%.100s: %.70s on quern: %s; %.70s in Label Studio: %s%s",
             json_string_value(json_member(judgement, "custom_id")), curator, mine,
             json_string_value(json_member(judgement, "curator")), theirs,
             is_held ? " (not taken)" : "");
    pull->report->conflicts++;
    pull->wish->show(pull->wish->context, sentence);
    return is_held;
}

/* --- annotations --- */

static enum err take_annotation(struct pull *pull, const json_t *meta, const json_t *object,
                                struct error *error) {
    char key[KEY_BYTES], curator[CURATOR_BYTES];
    if (!annotation_key(object, key, sizeof key))
        return err_set(error, ERR_CORRUPT,
                       "Label Studio lists annotations without their results; nothing is taken");
    if (map_get(&pull->link->annotations, str_from(key), NULL) || annotation_is_own(object))
        return OK;
    curator_name(pull->users, object, curator);
    const struct annotation annotation = {
        .studio = pull->link->studio, .object = object, .meta = meta, .curator = curator};
    json_t *judgement = judgement_make(&pull->link->form, &annotation);
    const char *id = json_string_value(json_member(judgement, "id"));
    bool is_posted = kept_judgements_has(&pull->judgements, id);
    bool is_held = !is_posted && check_conflict(pull, judgement);
    enum err err = OK;
    if (!is_posted && !is_held) err = kept_judgements_post(&pull->judgements, judgement, error);
    if (err == OK) {
        link_add_judgement(pull->link, key, judgement, is_held);
        pull->report->held += is_held;
        pull->report->pulled += !is_held;
    }
    json_decref(judgement);
    return err;
}

/* Orders annotations of one task by their time of change, so that the newest one becomes the
 * newest judgement of its curator. Texts of times compare, because one server writes one form. */
static int compare_times(const void *a, const void *b) {
    const json_t *const *left = a, *const *right = b;
    return str_compare(json_member_str(*left, "updated_at"), json_member_str(*right, "updated_at"));
}

static enum err take_task(struct pull *pull, const json_t *task, struct error *error) {
    const json_t *meta = json_member(task, "meta"), *given = json_member(task, "annotations");
    size_t count = json_array_size(given);
    enum err err = OK;
    if (count == 0 || !str_is(json_member_str(meta, "batch_id"), pull->wish->batch) ||
        !json_is_string(json_member(meta, "custom_id")))
        return OK;
    const json_t **ordered = calloc(count, sizeof *ordered);
    if (!ordered) no_memory();
    for (size_t i = 0; i < count; i++) ordered[i] = json_array_get(given, i);
    qsort(ordered, count, sizeof *ordered, compare_times);
    for (size_t i = 0; i < count && err == OK; i++)
        err = take_annotation(pull, meta, ordered[i], error);
    free(ordered);
    return err;
}

static enum err take_page(void *context, const json_t *tasks, struct error *error) {
    struct pull *pull = context;
    const json_t *task;
    size_t index;
    struct error ignored;
    enum err err = OK;
    json_array_foreach(tasks, index, task) {
        err = take_task(pull, task, error);
        if (err != OK) break;
    }
    if (err == OK) {
        err = link_sync(pull->link, error);
        pull->wish->progress(pull->wish->context, pull->report->pulled);
        return err;
    }
    (void)!link_sync(pull->link, &ignored); /* keeps the judgements that were posted */
    return err;
}

enum err studio_pull_run(struct studio *studio, struct link *link,
                         const struct studio_pull_wish *wish, struct studio_pull_report *ret_report,
                         struct error *error) {
    struct pull pull = {.studio = studio, .link = link, .wish = wish, .report = ret_report};
    *ret_report = (struct studio_pull_report){.known = link->annotations.count};
    if (link->project == 0)
        return err_set(error, ERR_CONFLICT,
                       "%s names no project yet: quern label-studio push makes it", link->path);
    enum err err = studio_get_users(studio, &pull.users, error);
    if (err == ERR_DENIED || err == ERR_NOT_FOUND) err = OK; /* curators are numbers then */
    if (err == OK)
        err = kept_judgements_open(&pull.judgements, wish->remote, wish->judgements_path,
                                   wish->batch, error);
    if (err == OK)
        err = studio_each_task(studio, link->project, 0, STUDIO_ANNOTATED, take_page, &pull, error);
    if (err == OK)
        err = studio_each_task(studio, link->project, 0, STUDIO_SKIPPED, take_page, &pull, error);
    kept_judgements_close(&pull.judgements);
    json_decref(pull.users);
    return err;
}
