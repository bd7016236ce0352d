/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/studio_push.h"

#include "base/clock.h"
#include "json/json.h"
#include "label_studio/studio_project.h"
#include "label_studio/task.h"

#include <inttypes.h>
#include <stdio.h>

#define CHUNK_BYTES_MAX ((size_t)16 << 20)
#define LOOK_FIRST_MS 250
#define LOOK_LAST_MS 4000
#define ROUNDS_MAX 4

struct push {
    struct studio *studio;
    struct link *link;
    const struct studio_push_wish *wish;
    struct studio_push_report *report;
    uint64_t missing;       /* tasks of this round that have not arrived */
    bool was_repeated;      /* a chunk was sent again */
    int64_t repeated_after; /* the newest task before the first such chunk */
    struct map seen;        /* custom_ids of this round */
    /* Members for one list of tasks: */
    struct map listed; /* custom_ids whose task of the link is in the list */
    json_t *seconds;   /* array of [custom_id, task, has an annotation] */
    json_t *found;     /* tasks of one page: {custom_id: task} */
};

/* --- the project's tasks --- */

static int64_t number_of(const json_t *object, const char *name) {
    const json_t *value = json_member(object, name);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : 0;
}

static void take_task(struct push *push, const json_t *task) {
    const json_t *meta = json_member(task, "meta");
    struct str id = json_member_str(meta, "custom_id");
    int64_t number = number_of(task, "id");
    uint64_t known = 0;
    if (!id.at || number <= 0 || !str_is(json_member_str(meta, "batch_id"), push->link->batch))
        return;
    if (!map_get(&push->link->tasks, id, &known)) {
        const json_t *earlier = json_object_getn(push->found, id.at, id.bytes);
        known = earlier ? (uint64_t)json_integer_value(earlier) : 0;
        if (known == 0) {
            json_object_setn_new(push->found, id.at, id.bytes, json_integer(number));
            map_put(&push->listed, id, 1);
            return;
        }
    }
    if (known == (uint64_t)number) {
        map_put(&push->listed, id, 1);
        return;
    }
    bool is_used =
        number_of(task, "total_annotations") + number_of(task, "cancelled_annotations") > 0;
    json_array_append_new(push->seconds,
                          json_pack("[s%,I,b]", id.at, id.bytes, (json_int_t)number, is_used));
}

static enum err take_page(void *context, const json_t *tasks, struct error *error) {
    struct push *push = context;
    const json_t *task;
    size_t index;
    push->found = json_object();
    json_array_foreach(tasks, index, task) take_task(push, task);
    if (json_object_size(push->found) > 0) link_add_tasks(push->link, push->found);
    json_decref(push->found);
    push->found = NULL;
    return link_sync(push->link, error);
}

/* Removes the second tasks whose first one is still in the project. */
static enum err remove_seconds(struct push *push, struct error *error) {
    json_t *ids = json_array();
    const json_t *second;
    size_t index;
    enum err err = OK;
    json_array_foreach(push->seconds, index, second) {
        const json_t *id = json_array_get(second, 0), *number = json_array_get(second, 1);
        if (!map_get(&push->listed, json_str(id), NULL)) continue;
        if (json_is_true(json_array_get(second, 2)))
            studio_say(push->studio,
                       "task %" PRId64 " is a second one of %.100s, and stays: it has annotations",
                       (int64_t)json_integer_value(number), json_string_value(id));
        else
            json_array_append(ids, (json_t *)(uintptr_t)number);
    }
    if (json_array_size(ids) > 0)
        err = studio_remove_tasks(push->studio, push->link->project, ids, error);
    if (err == OK) push->report->removed += json_array_size(ids);
    json_decref(ids);
    return err;
}

/* Lists the tasks behind `after`, and takes over those that the link does not have. */
static enum err list_tasks(struct push *push, int64_t after, bool removes, struct error *error) {
    map_init(&push->listed);
    push->seconds = json_array();
    enum err err = studio_each_task(push->studio, push->link->project, after, STUDIO_ALL, take_page,
                                    push, error);
    if (err == OK && removes) err = remove_seconds(push, error);
    json_decref(push->seconds);
    push->seconds = NULL;
    map_release(&push->listed);
    return err;
}

/* --- one chunk --- */

/* True if each request of the open chunk has its task. */
static bool is_whole(const struct link *link) {
    const json_t *id;
    size_t index;
    json_array_foreach(link->chunk.custom_ids, index,
                       id) if (!map_get(&link->tasks, json_str(id), NULL)) return false;
    return true;
}

/* Waits for the outcome of the open chunk, and ends it. */
static enum err settle(struct push *push, struct error *error) {
    struct link *link = push->link;
    int64_t wait_ms = LOOK_FIRST_MS;
    if (link->chunk.import > 0) {
        enum err err = studio_wait_import(push->studio, link->project, link->chunk.import, error);
        if (err != OK) return err;
    }
    for (;;) {
        enum err err = list_tasks(push, link->chunk.after, false, error);
        if (err != OK) return err;
        int64_t passed_ms = clock_unix_ms() - link->chunk.at_ms;
        if (is_whole(link)) break;
        if (passed_ms < 0 || passed_ms >= push->wish->settle_ms) {
            if (link->chunk.import == LINK_ANSWERED)
                return err_set(error, ERR_CORRUPT,
                               "project %" PRId64
                               " does not show the tasks that the server has taken",
                               link->project);
            studio_say(push->studio, "a chunk of tasks has not arrived; sending it again");
            push->missing += json_array_size(link->chunk.custom_ids);
            if (!push->was_repeated || link->chunk.after < push->repeated_after)
                push->repeated_after = link->chunk.after;
            push->was_repeated = true;
            link_end_chunk(link, false);
            return link_sync(link, error);
        }
        err = studio_pause(push->studio, wait_ms, error);
        if (err != OK) return err;
        if (wait_ms < LOOK_LAST_MS) wait_ms *= 2;
    }
    link_end_chunk(link, true);
    return link_sync(link, error);
}

/* Sends the tasks whose requests have none yet. `ids` becomes the link's. */
static enum err send_chunk(struct push *push, json_t *ids, struct str tasks, struct error *error) {
    struct link *link = push->link;
    enum studio_outcome outcome;
    int64_t import = 0;
    link_send(link, ids, clock_unix_ms());
    enum err err = link_sync(link, error);
    if (err != OK) return err;
    err = studio_import(push->studio, link->project, tasks, &outcome, &import, error);
    if (err != OK) {
        struct error ignored;
        bool may_be_done =
            err == ERR_CANCELLED || err == ERR_CORRUPT || err == ERR_UNAVAILABLE || err == ERR_IO;
        if (!may_be_done) link_end_chunk(link, false);
        (void)!link_sync(link, &ignored);
        return err;
    }
    if (outcome == STUDIO_DONE) link_set_import(link, import > 0 ? import : LINK_ANSWERED);
    err = link_sync(link, error);
    return err == OK ? settle(push, error) : err;
}

/* Tasks of the next chunk. */
struct filling {
    struct buf tasks; /* a JSON array without its last bracket */
    json_t *ids;
};

static enum err flush(struct push *push, struct filling *filling, struct error *error) {
    if (json_array_size(filling->ids) == 0) return OK;
    buf_add_byte(&filling->tasks, ']');
    json_t *ids = filling->ids;
    filling->ids = json_array();
    enum err err = send_chunk(push, ids, buf_str(&filling->tasks), error);
    buf_clear(&filling->tasks);
    if (err == OK)
        push->wish->progress(push->wish->context, push->link->project, push->link->tasks.count);
    return err;
}

static enum err take_pair(struct push *push, struct filling *filling, const struct pair *pair,
                          struct error *error) {
    const struct task_wish wish = {.batch_id = push->link->batch, .form = &push->link->form};
    json_t *task;
    bool is_new = map_put_new(&push->seen, pair->custom_id, 1, NULL);
    if (!is_new || map_get(&push->link->tasks, pair->custom_id, NULL)) {
        push->report->known++;
        return OK;
    }
    enum err err = task_make(&task, &wish, pair, error);
    if (err != OK) return err;
    if (!task) {
        push->report->unanswered++;
        return OK;
    }
    size_t before = filling->tasks.bytes;
    buf_add_byte(&filling->tasks, before == 0 ? '[' : ',');
    json_write(&filling->tasks, task);
    json_decref(task);
    json_array_append_new(filling->ids, json_stringn(pair->custom_id.at, pair->custom_id.bytes));
    bool is_full = json_array_size(filling->ids) >= STUDIO_PUSH_CHUNK_TASKS ||
                   filling->tasks.bytes >= CHUNK_BYTES_MAX;
    return is_full ? flush(push, filling, error) : OK;
}

/* Sends the answers that have no task yet, from the first pair on. */
static enum err send_all(struct push *push, struct pairs *pairs, struct error *error) {
    struct filling filling = {.ids = json_array()};
    struct pair pair;
    bool has = true;
    push->report->known = push->report->unanswered = push->missing = 0;
    map_init(&push->seen);
    buf_init(&filling.tasks, BUF_UNLIMITED);
    enum err err = pairs_rewind(pairs, error);
    while (err == OK) {
        err = pairs_next(pairs, &pair, &has, error);
        if (err != OK || !has) break;
        err = take_pair(push, &filling, &pair, error);
    }
    if (err == OK) err = flush(push, &filling, error);
    buf_release(&filling.tasks);
    json_decref(filling.ids);
    map_release(&push->seen);
    return err;
}

/* Sends all answers, and repeats those that have not arrived, in at most ROUNDS_MAX rounds. */
static enum err send_rounds(struct push *push, struct pairs *pairs, struct error *error) {
    uint64_t known = 0;
    for (int round = 0; round < ROUNDS_MAX; round++) {
        enum err err = send_all(push, pairs, error);
        if (round == 0) known = push->report->known;
        push->report->known = known;
        if (err != OK || push->missing == 0) return err;
    }
    return err_set(error, ERR_UNAVAILABLE,
                   "%" PRIu64 " %s not arrived in project %" PRId64 "; the same command goes on",
                   push->missing, plural(push->missing, "task has", "tasks have"),
                   push->link->project);
}

enum err studio_push_run(struct studio *studio, struct link *link, struct pairs *pairs,
                         const struct studio_push_wish *wish, struct studio_push_report *ret_report,
                         struct error *error) {
    struct push push = {.studio = studio, .link = link, .wish = wish, .report = ret_report};
    *ret_report = (struct studio_push_report){0};
    enum err err = studio_project(studio, link, pairs, wish, error);
    if (err == OK) wish->progress(wish->context, link->project, link->tasks.count);
    size_t known = link->tasks.count;
    if (err == OK && link->chunk.custom_ids) err = settle(&push, error);
    if (err == OK) err = list_tasks(&push, 0, true, error);
    size_t before = link->tasks.count;
    ret_report->found = before - known;
    if (err == OK) err = send_rounds(&push, pairs, error);
    ret_report->unused = err == OK ? pairs_unused(pairs) : 0;
    ret_report->pushed = link->tasks.count - before;
    if (err == OK && push.was_repeated) err = list_tasks(&push, push.repeated_after, true, error);
    return err;
}
