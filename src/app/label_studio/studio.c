/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/studio.h"

#include "base/clock.h"
#include "base/mem.h"
#include "client/objects.h"
#include "client/remote.h"
#include "json/json.h"
#include "label_studio/studio_token.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMPORT_MS 900000 /* 15 min: a server may take minutes for a chunk of long texts */
#define POLL_FIRST_MS 250
#define POLL_LAST_MS 5000
#define PAGE_TASKS 500
#define PAGE_ANNOTATED 100
#define PAGE_PROJECTS 100
/* The members of tasks and of annotations that the server shall send. */
#define ANNOTATED_FIELDS                                                                           \
    "&fields=all&include=id,meta,annotations,result,completed_by,was_cancelled,updated_at,"        \
    "last_action,updated_by,reviews"
#define HISTORY_FIELDS ANNOTATED_FIELDS ",data,ground_truth"
#define PIECE_MS 50
#define TREE_BYTES_MAX ((size_t)2 << 30)

struct studio {
    struct studio_options options;
    struct remote *remote;
    struct studio_token token;
};

void studio_say(const struct studio *studio, const char *format, ...) {
    char text[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    remote_say(studio->remote, "%s", text);
}

enum err studio_pause(const struct studio *studio, int64_t milliseconds, struct error *error) {
    while (milliseconds > 0) {
        if (*studio->options.stop) return err_set(error, ERR_CANCELLED, "stopped");
        int64_t piece_ms = milliseconds < PIECE_MS ? milliseconds : PIECE_MS;
        clock_sleep_ms(piece_ms);
        milliseconds -= piece_ms;
    }
    return OK;
}

/* --- calls --- */

/* Makes one attempt with a valid token, and after a 401 a second one if a new token can be
 * bought. */
static enum err attempt(struct studio *studio, struct remote_call *call,
                        struct remote_answer *ret_answer, struct error *error) {
    for (int round = 0;; round++) {
        enum err err = studio_token_ready(&studio->token, studio->remote, error);
        if (err != OK) return err;
        call->authorization = studio->token.line;
        err = remote_try(studio->remote, call, ret_answer, error);
        bool may_help = err == OK && ret_answer->status == 401 && round == 0 &&
                        studio_token_forget(&studio->token);
        if (!may_help) return err;
    }
}

/* The error of an answer. Label Studio gives its reasons in `validation_errors`. */
static enum err judge(const struct studio *studio, const struct remote_answer *answer,
                      struct error *error) {
    struct buf text;
    char reason[300] = "";
    json_t *object = NULL;
    size_t room = TREE_BYTES_MAX;
    struct error ignored;
    if (answer->end != REMOTE_ANSWERED || answer->status != 400)
        return remote_judge(studio->remote, answer, error);
    buf_init(&text, BUF_UNLIMITED);
    if (json_read_within(&object, answer->body, &room, &ignored) == OK) {
        const json_t *what = json_member(object, "validation_errors");
        if (!what && !json_member(object, "detail")) what = object;
        if (what) json_write(&text, what);
        if (!what) buf_add_str(&text, json_member_str(object, "detail"));
    }
    object_copy_text(buf_str(&text), reason, sizeof reason);
    json_decref(object);
    buf_release(&text);
    return err_set(error, ERR_INVALID, "%.150s refuses: %s", studio->options.url,
                   *reason ? reason : "400");
}

static enum err read_answer(const struct remote_answer *answer, json_t **ret_value,
                            struct error *error) {
    size_t room = TREE_BYTES_MAX;
    if (answer->body.bytes == 0) {
        *ret_value = json_null();
        return OK;
    }
    if (json_read_within(ret_value, answer->body, &room, error) == OK) return OK;
    return err_set(
        error, ERR_CORRUPT,
        "the server's answer is no JSON: is --label-studio-url the URL of a Label Studio?");
}

/* Makes a call that may be repeated, until it is answered. */
static enum err ask(struct studio *studio, const char *path, struct str body, json_t **ret_value,
                    struct error *error) {
    struct remote_call call = {.path = path, .body = body};
    struct remote_answer answer;
    for (;;) {
        enum err err = attempt(studio, &call, &answer, error);
        if (err != OK) return err;
        if (answer.end == REMOTE_ANSWERED && !remote_may_pass(&answer)) break;
        err = remote_wait(studio->remote, &answer, error);
        if (err != OK) return err;
    }
    enum err err = judge(studio, &answer, error);
    return err == OK ? read_answer(&answer, ret_value, error) : err;
}

/* True if the server has surely not done the call. */
static bool is_surely_undone(const struct remote_answer *answer) {
    return answer->end == REMOTE_UNSENT ||
           (answer->end == REMOTE_ANSWERED && answer->status == 429);
}

/* Makes a call that must not be repeated. */
static enum err make(struct studio *studio, const char *path, struct str body,
                     enum studio_outcome *ret_outcome, json_t **ret_value, struct error *error) {
    struct remote_call call = {.path = path, .body = body, .answer_ms = IMPORT_MS};
    struct remote_answer answer;
    enum err err;
    for (;;) {
        err = attempt(studio, &call, &answer, error);
        if (err != OK || !is_surely_undone(&answer)) break;
        err = remote_wait(studio->remote, &answer, error);
        if (err != OK) break;
    }
    if (err != OK) return err;
    *ret_value = NULL;
    *ret_outcome = STUDIO_UNKNOWN;
    if (remote_may_pass(&answer)) {
        char status[32];
        snprintf(status, sizeof status, "answers %d", answer.status);
        studio_say(studio, "the server %.200s, and may have done its work; looking",
                   answer.end == REMOTE_ANSWERED ? status : answer.why);
        return OK;
    }
    err = judge(studio, &answer, error);
    if (err == OK) err = read_answer(&answer, ret_value, error);
    if (err == OK) *ret_outcome = STUDIO_DONE;
    return err;
}

/* --- projects --- */

static struct str body_of(json_t *object, struct buf *text) {
    buf_init(text, BUF_UNLIMITED);
    json_write(text, object);
    json_decref(object);
    return buf_str(text);
}

static int64_t number_of(const json_t *object, const char *name) {
    const json_t *value = json_member(object, name);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : 0;
}

enum err studio_check_config(struct studio *studio, const char *config, struct error *error) {
    json_t *object = json_object(), *answer = NULL;
    struct buf text;
    json_object_set_new(object, "label_config", json_string(config));
    enum err err = ask(studio, "/api/projects/validate/", body_of(object, &text), &answer, error);
    json_decref(answer);
    buf_release(&text);
    return err == OK ? OK : err_prefix(error, "the config that the answers need");
}

enum err studio_make_project(struct studio *studio, const struct studio_project *project,
                             enum studio_outcome *ret_outcome, int64_t *ret_id,
                             struct error *error) {
    json_t *object = json_object(), *answer = NULL;
    struct buf text;
    json_object_set_new(object, "title", json_string(project->title));
    json_object_set_new(object, "description", json_string(project->marker));
    json_object_set_new(object, "label_config", json_string(project->config));
    json_object_set_new(object, "show_collab_predictions", json_true());
    enum err err =
        make(studio, "/api/projects/", body_of(object, &text), ret_outcome, &answer, error);
    buf_release(&text);
    if (err == OK && *ret_outcome == STUDIO_DONE) {
        *ret_id = number_of(answer, "id");
        if (*ret_id <= 0) err = err_set(error, ERR_CORRUPT, "the new project has no id");
    }
    json_decref(answer);
    return err;
}

enum err studio_find_project(struct studio *studio, const char *marker, int64_t *ret_id,
                             struct error *error) {
    *ret_id = 0;
    for (int page = 1;; page++) {
        char path[128];
        json_t *answer = NULL;
        const json_t *project;
        size_t index;
        snprintf(path, sizeof path, "/api/projects/?page=%d&page_size=%d", page, PAGE_PROJECTS);
        enum err err = ask(studio, path, (struct str){0}, &answer, error);
        if (err != OK) return err;
        json_array_foreach(json_member(answer, "results"), index, project) {
            struct str text = json_member_str(project, "description");
            if (text.at && str_find(text, str_from(marker), 0) != SIZE_MAX)
                *ret_id = number_of(project, "id");
        }
        bool has_more = json_member(answer, "next") != NULL;
        json_decref(answer);
        if (*ret_id > 0 || !has_more) return OK;
    }
}

enum err studio_get_project(struct studio *studio, int64_t id, json_t **ret_project,
                            struct error *error) {
    char path[64];
    snprintf(path, sizeof path, "/api/projects/%" PRId64 "/", id);
    enum err err = ask(studio, path, (struct str){0}, ret_project, error);
    return err == OK ? OK : err_prefix(error, "project %" PRId64, id);
}

/* --- tasks --- */

enum err studio_import(struct studio *studio, int64_t project, struct str tasks,
                       enum studio_outcome *ret_outcome, int64_t *ret_import, struct error *error) {
    char path[128];
    json_t *answer = NULL;
    snprintf(path, sizeof path,
             "/api/projects/%" PRId64 "/import?return_task_ids=true&commit_to_project=true",
             project);
    enum err err = make(studio, path, tasks, ret_outcome, &answer, error);
    *ret_import = err == OK ? number_of(answer, "import") : 0;
    json_decref(answer);
    return err;
}

enum err studio_wait_import(struct studio *studio, int64_t project, int64_t import,
                            struct error *error) {
    int64_t wait_ms = POLL_FIRST_MS;
    char path[128], status[32];
    snprintf(path, sizeof path, "/api/projects/%" PRId64 "/imports/%" PRId64 "/", project, import);
    for (;;) {
        json_t *answer = NULL;
        enum err err = ask(studio, path, (struct str){0}, &answer, error);
        if (err != OK) return err;
        object_copy_text(json_member_str(answer, "status"), status, sizeof status);
        if (strcmp(status, "failed") == 0) {
            char reason[200];
            object_copy_text(json_member_str(answer, "error"), reason, sizeof reason);
            err = err_set(error, ERR_INVALID, "%.150s refuses: %s", studio->options.url, reason);
        }
        json_decref(answer);
        if (err != OK || strcmp(status, "completed") == 0) return err;
        err = studio_pause(studio, wait_ms, error);
        if (err != OK) return err;
        if (wait_ms < POLL_LAST_MS) wait_ms *= 2;
    }
}

enum err studio_remove_tasks(struct studio *studio, int64_t project, json_t *ids,
                             struct error *error) {
    char path[128];
    json_t *object = json_object(), *selected = json_object(), *answer = NULL;
    struct buf text;
    snprintf(path, sizeof path, "/api/dm/actions?id=delete_tasks&project=%" PRId64, project);
    json_object_set_new(selected, "all", json_false());
    json_object_set(selected, "included", ids);
    json_object_set_new(object, "selectedItems", selected);
    enum err err = ask(studio, path, body_of(object, &text), &answer, error);
    json_decref(answer);
    buf_release(&text);
    return err;
}

/* Appends the path of a page: the tasks behind the task `after`. Numbers of pages would shift while
 * other people work. */
static void add_tasks_path(struct buf *path, int64_t project, int64_t after,
                           enum studio_part part) {
    char query[512], more[160] = "";
    const char *counted = part == STUDIO_SKIPPED ? "cancelled_annotations" : "total_annotations";
    if (part != STUDIO_ALL)
        snprintf(more, sizeof more,
                 ",{\"filter\":\"filter:tasks:%s\",\"operator\":\"greater\",\"type\":\"Number\","
                 "\"value\":0}",
                 counted);
    snprintf(query, sizeof query,
             "{\"filters\":{\"conjunction\":\"and\",\"items\":[{\"filter\":\"filter:tasks:id\","
             "\"operator\":\"greater\",\"type\":\"Number\",\"value\":%" PRId64
             "}%s]},\"ordering\":[\"tasks:id\"]}",
             after, more);
    buf_printf(path, "/api/tasks/?project=%" PRId64 "&page=1&page_size=%d%s&query=", project,
               part == STUDIO_ALL ? PAGE_TASKS : PAGE_ANNOTATED,
               part == STUDIO_ALL       ? "&include=id,meta,total_annotations,cancelled_annotations"
               : part == STUDIO_HISTORY ? HISTORY_FIELDS
                                        : ANNOTATED_FIELDS);
    object_add_id(path, query);
}

/* Checks that all tasks of a page are behind `after`; *ret_last is the last of them. */
static enum err check_page(const json_t *tasks, int64_t after, int64_t *ret_last,
                           struct error *error) {
    const json_t *task;
    size_t index;
    *ret_last = after;
    if (!json_is_array(tasks))
        return err_set(error, ERR_CORRUPT, "the server's list of tasks is none");
    json_array_foreach(tasks, index, task) {
        int64_t id = number_of(task, "id");
        if (id <= *ret_last)
            return err_set(error, ERR_CORRUPT,
                           "the server lists tasks in another order than it was asked for");
        *ret_last = id;
    }
    return OK;
}

enum err studio_each_task(struct studio *studio, int64_t project, int64_t after,
                          enum studio_part part, studio_tasks_fn take, void *context,
                          struct error *error) {
    bool has_more;
    do {
        json_t *answer = NULL;
        int64_t last = after;
        struct buf path;
        buf_init(&path, BUF_UNLIMITED);
        add_tasks_path(&path, project, after, part);
        enum err err = ask(studio, path.at, (struct str){0}, &answer, error);
        buf_release(&path);
        const json_t *tasks = json_is_array(answer) ? answer : json_member(answer, "tasks");
        if (err == OK) err = check_page(tasks, after, &last, error);
        size_t count = json_array_size(tasks);
        /* A server may send smaller pages than requested; most send the number of tasks left. */
        int64_t total = number_of(answer, "total");
        has_more = count > 0 && (total == 0 || (int64_t)count < total);
        if (err == OK && count > 0) err = take(context, tasks, error);
        json_decref(answer);
        if (err != OK) return err;
        after = last;
    } while (has_more);
    return OK;
}

enum err studio_annotate(struct studio *studio, int64_t task, const json_t *annotation,
                         struct error *error) {
    char path[64];
    json_t *answer = NULL;
    struct buf text;
    snprintf(path, sizeof path, "/api/tasks/%" PRId64 "/annotations/", task);
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, annotation);
    enum err err = ask(studio, path, buf_str(&text), &answer, error);
    json_decref(answer);
    buf_release(&text);
    return err == ERR_CONFLICT ? OK : err; /* 409: an earlier call has made it */
}

enum err studio_get_users(struct studio *studio, json_t **ret_users, struct error *error) {
    return ask(studio, "/api/users/", (struct str){0}, ret_users, error);
}

/* --- opening and closing --- */

enum err studio_open(struct studio **ret_studio, const struct studio_options *options,
                     struct error *error) {
    struct studio *studio = mem_new(1, sizeof *studio);
    const struct remote_options remote = {.base_url = options->url,
                                          .certificates = options->certificates,
                                          .patience_ms = options->patience_ms,
                                          .key_advice =
                                              "LABEL_STUDIO_API_KEY or --label-studio-token-file",
                                          .url_option = "--label-studio-url",
                                          .stop = options->stop,
                                          .context = options->context,
                                          .say = options->say};
    studio->options = *options;
    studio->options.token = NULL;
    studio_token_init(&studio->token, options->token);
    enum err err = remote_open(&studio->remote, &remote, error);
    if (err != OK) {
        studio_close(studio);
        return err;
    }
    *ret_studio = studio;
    return OK;
}

void studio_close(struct studio *studio) {
    if (!studio) return;
    remote_close(studio->remote);
    studio_token_release(&studio->token);
    free(studio);
}
