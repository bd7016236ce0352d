/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/studio_send.h"

#include "json/json.h"
#include "label_studio/annotation.h"
#include "label_studio/kept_judgements.h"
#include "label_studio/reply.h"

#include <inttypes.h>

struct sending {
    struct studio *studio;
    struct link *link;
    const struct studio_send_wish *wish;
    struct studio_send_report *report;
    const json_t *config; /* config of the project */
};

static enum err send_one(struct sending *sending, int64_t task, const json_t *answer,
                         const json_t *judgement, struct error *error) {
    const struct annotation_wish wish = {.batch = sending->link->batch,
                                         .project = sending->link->project,
                                         .form = &sending->link->form,
                                         .config = sending->config,
                                         .answer = answer,
                                         .judgement = judgement};
    json_t *annotation = annotation_make(&wish);
    enum err err = annotation ? studio_annotate(sending->studio, task, annotation, error) : OK;
    json_decref(annotation);
    if (!annotation || err == ERR_NOT_FOUND) { /* somebody has removed the task */
        sending->report->unsent++;
        return OK;
    }
    if (err != OK) return err;
    sending->report->sent++;
    link_add_sent(sending->link, json_string_value(json_member(judgement, "id")));
    err = link_sync(sending->link, error);
    sending->wish->progress(sending->wish->context, sending->report->sent);
    return err;
}

/* True for a judgement that was made on quern and is no annotation yet. */
static bool is_wanted(const struct sending *sending, const json_t *judgement) {
    struct str id = json_member_str(judgement, "id");
    return id.at && !kept_judgements_is_pulled(judgement) &&
           !map_get(&sending->link->sent, id, NULL);
}

static enum err send_of_line(struct sending *sending, const struct pair *pair, json_t *curators,
                             struct error *error) {
    uint64_t task = 0;
    struct reply reply;
    const char *curator;
    json_t *judgement;
    bool has_task = map_get(&sending->link->tasks, pair->custom_id, &task);
    enum err err = reply_read(&reply, pair->result, error);
    if (err != OK) return err;
    json_object_foreach(curators, curator, judgement) {
        if (!is_wanted(sending, judgement)) continue;
        if (has_task && reply.object)
            err = send_one(sending, (int64_t)task, reply.object, judgement, error);
        else
            sending->report->unsent++;
        if (err != OK) break;
    }
    reply_release(&reply);
    return err;
}

static enum err send_all(struct sending *sending, struct pairs *pairs,
                         const struct kept_judgements *kept, struct error *error) {
    struct pair pair;
    bool has = true;
    enum err err = pairs_rewind(pairs, error);
    while (err == OK) {
        err = pairs_next(pairs, &pair, &has, error);
        if (err != OK || !has) break;
        json_t *curators = json_object_getn(kept->newest, pair.custom_id.at, pair.custom_id.bytes);
        if (curators && pair.result.bytes > 0) err = send_of_line(sending, &pair, curators, error);
    }
    return err;
}

enum err studio_send_run(struct studio *studio, struct link *link, struct pairs *pairs,
                         const struct studio_send_wish *wish, struct studio_send_report *ret_report,
                         struct error *error) {
    struct sending sending = {.studio = studio, .link = link, .wish = wish, .report = ret_report};
    struct kept_judgements kept;
    json_t *project = NULL;
    *ret_report = (struct studio_send_report){0};
    if (link->project == 0) return err_set(error, ERR_CONFLICT, "%s names no project", link->path);
    enum err err =
        kept_judgements_open(&kept, wish->remote, wish->judgements_path, wish->batch, error);
    if (err != OK) return err;
    err = studio_get_project(studio, link->project, &project, error);
    sending.config = json_member(project, "parsed_label_config");
    if (err == OK) err = send_all(&sending, pairs, &kept, error);
    json_decref(project);
    kept_judgements_close(&kept);
    return err;
}
