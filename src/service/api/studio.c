/* SPDX-License-Identifier: Apache-2.0 */

/* GET and POST /v1/batches/{id}/label_studio (an extension): the table of jobs and their states. */

#include "api/studio.h"

#include "api/api_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE_BYTES_MAX ((size_t)1 << 20)

const char *const studio_actions[] = {"sync", "push", "pull", NULL};

struct asked {
    struct str action;
};
static const struct field rows[] = {
    {"action", FIELD_CHOICE, FIELD_ANY, 0, 0, 0, offsetof(struct asked, action), studio_actions,
     "push: answers become tasks; pull: annotations become judgements; sync does both and is the "
     "default."},
};
const struct fields studio_fields = {rows, sizeof rows / sizeof *rows, false, api_field_refuse};

struct studio_jobs {
    pthread_mutex_t lock; /* guards the members below, and those of a job that studio.h names */
    struct studio_job *first;
    bool is_stopping;
};

/* --- states --- */

static void name_state(const struct api *api, const char *batch_id, char ret_path[PATH_MAX]) {
    snprintf(ret_path, PATH_MAX, "%.3500s/label_studio/%s.json", store_dir(api->options.store),
             batch_id);
}

/* The file appears whole. A kill may leave a file of the other name; the next write replaces it. */
static enum err place_text(const char *path, struct str text, struct error *error) {
    char made[PATH_MAX];
    snprintf(made, sizeof made, "%.4000s.new", path);
    enum err err = os_write_file(made, 0600, text.at, text.bytes, error);
    return err == OK ? os_rename(made, path, error) : err;
}

/* Keeps the state for the time after a restart. If it is lost, the page forgets the project until
 * the next job. */
static void write_state(const struct api *api, const char *batch_id, const json_t *state) {
    char path[PATH_MAX];
    struct buf text;
    struct error error;
    if (!store_batch_exists(api->options.store, batch_id)) return; /* it was deleted meanwhile */
    name_state(api, batch_id, path);
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, state);
    if (place_text(path, buf_str(&text), &error) != OK)
        log_warn("batch=%s event=label_studio_state_lost error=\"%s\"", batch_id, error.text);
    buf_release(&text);
}

static json_t *new_state(const struct api *api, const char *batch_id, const char *status) {
    return json_pack("{s:s,s:s,s:s?,s:s,s:n,s:n,s:i,s:i,s:i,s:i,s:i,s:i,s:[],s:n,s:n,s:n,s:n}",
                     "object", "batch.label_studio", "batch_id", batch_id, "url",
                     api->options.studio ? api->options.studio_url : NULL, "status", status,
                     "action", "project", "tasks", 0, "fetched", 0, "judgements", 0, "sent", 0,
                     "refused", 0, "conflicts", 0, "conflict_texts", "said", "error", "started_at",
                     "ended_at");
}

/* The state of the newest job before this start. A job of another Label Studio does not count. */
static json_t *read_state(const struct api *api, const char *batch_id) {
    char path[PATH_MAX], *text = NULL;
    size_t bytes;
    struct error ignored;
    json_t *state = NULL;
    name_state(api, batch_id, path);
    if (api->options.studio && os_read_file(path, STATE_BYTES_MAX, &text, &bytes, &ignored) == OK &&
        json_read(&state, (struct str){text, bytes}, &ignored) != OK)
        state = NULL;
    free(text);
    if (json_is_object(state) && str_is(json_member_str(state, "url"), api->options.studio_url)) {
        if (str_is(json_member_str(state, "status"), "running"))
            json_object_set_new(state, "status", json_string("interrupted"));
        return state;
    }
    json_decref(state);
    return new_state(api, batch_id, "none");
}

static void add_project_url(const struct api *api, json_t *state) {
    char url[2100];
    const json_t *project = json_member(state, "project");
    if (!json_is_integer(project)) return;
    snprintf(url, sizeof url, "%.2000s/projects/%lld/data", api->options.studio_url,
             (long long)json_integer_value(project));
    json_object_set_new(state, "project_url", json_string(url));
}

static void answer_state(const struct api *api, struct http_request *request, json_t *state) {
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    json_object_set_new(state, "project_url", json_null());
    add_project_url(api, state);
    json_write(&body, state);
    json_decref(state);
    api_answer_json(request, &body);
}

/* --- the list of jobs --- */

/* The job of a batch that is not over, or NULL. The caller holds the lock. */
static struct studio_job *find(const struct studio_jobs *jobs, const char *batch_id) {
    for (struct studio_job *job = jobs->first; job; job = job->next)
        if (!job->is_over && strcmp(job->batch_id, batch_id) == 0) return job;
    return NULL;
}

/* A copy of the batch's state, which the caller owns. */
static json_t *find_state(const struct api *api, const char *batch_id) {
    struct studio_jobs *jobs = api->studio_jobs;
    pthread_mutex_lock(&jobs->lock);
    const struct studio_job *job = find(jobs, batch_id);
    json_t *state = job ? json_deep_copy(job->state) : NULL;
    pthread_mutex_unlock(&jobs->lock);
    return state ? state : read_state(api, batch_id);
}

/* Frees the jobs that are over; their threads end at once. The caller holds the lock. */
static void reap(struct studio_jobs *jobs) {
    struct studio_job **at = &jobs->first;
    while (*at) {
        struct studio_job *job = *at;
        if (!job->is_over) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        pthread_join(job->thread, NULL);
        json_decref(job->state);
        free(job);
    }
}

bool studio_job_is_stopped(struct studio_job *job) {
    struct studio_jobs *jobs = job->api->studio_jobs;
    pthread_mutex_lock(&jobs->lock);
    bool stops = jobs->is_stopping;
    pthread_mutex_unlock(&jobs->lock);
    return stops || !store_batch_exists(job->api->options.store, job->batch_id);
}

void studio_job_change(struct studio_job *job, void (*change)(json_t *state, const json_t *event),
                       const json_t *event) {
    struct studio_jobs *jobs = job->api->studio_jobs;
    pthread_mutex_lock(&jobs->lock);
    json_t *before = json_incref(json_object_get(job->state, "project"));
    change(job->state, event);
    /* After a kill the page still shows the project. */
    if (!json_equal(before, json_object_get(job->state, "project")))
        write_state(job->api, job->batch_id, job->state);
    json_decref(before);
    pthread_mutex_unlock(&jobs->lock);
}

static void set_error(json_t *state, const char *sentence) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    json_write_string(&text, str_from(sentence)); /* it may be cut within a character */
    json_object_set_new(state, "error", json_loads(text.at, JSON_DECODE_ANY, NULL));
    buf_release(&text);
}

/* The paths of this machine are no client's business. */
static void fail_job(struct studio_job *job, const struct error *error) {
    if (error->is_system)
        log_error("batch=%s event=label_studio_failed error=\"%s\"", job->batch_id, error->text);
    set_error(job->state,
              error->is_system ? "The server failed; its log has the reason" : error->text);
}

static void *job_main(void *context) {
    struct studio_job *job = context;
    struct studio_jobs *jobs = job->api->studio_jobs;
    struct error error;
    enum err err = studio_job_run(job, &error);
    const char *status = err == OK ? "done" : err == ERR_CANCELLED ? "interrupted" : "failed";
    pthread_mutex_lock(&jobs->lock);
    json_object_set_new(job->state, "status", json_string(status));
    if (err != OK && err != ERR_CANCELLED) fail_job(job, &error);
    json_object_set_new(job->state, "ended_at", json_integer(clock_unix_s()));
    write_state(job->api, job->batch_id, job->state);
    job->is_over = true;
    pthread_mutex_unlock(&jobs->lock);
    return NULL;
}

/* --- starting --- */

/* True if the owner gets a place. The last place is for an owner without a job. The caller holds
 * the lock. */
static bool has_place(const struct studio_jobs *jobs, const char *owner) {
    uint32_t all = 0, own = 0;
    for (const struct studio_job *job = jobs->first; job; job = job->next) {
        all += !job->is_over;
        own += !job->is_over && strcmp(job->owner, owner) == 0;
    }
    return all < STUDIO_JOBS_MAX - (own > 0);
}

enum started { STARTED, STARTED_NOT_RUNNING, STARTED_NOT_PLACE, STARTED_NOT_THREAD };

/* Puts the job into the list and starts its thread, or leaves it to the caller. */
static enum started start(struct studio_jobs *jobs, struct studio_job *job) {
    enum started started = STARTED;
    pthread_mutex_lock(&jobs->lock);
    if (!jobs->is_stopping) reap(jobs);
    if (find(jobs, job->batch_id))
        started = STARTED_NOT_RUNNING;
    else if (jobs->is_stopping || !has_place(jobs, job->owner))
        started = STARTED_NOT_PLACE;
    else if (pthread_create(&job->thread, NULL, job_main, job) != 0)
        started = STARTED_NOT_THREAD;
    if (started == STARTED) {
        pthread_setname_np(job->thread, "api-studio");
        job->next = jobs->first;
        jobs->first = job;
        write_state(job->api, job->batch_id, job->state);
    }
    pthread_mutex_unlock(&jobs->lock);
    return started;
}

static struct studio_job *make_job(struct api *api, const struct http_request *request,
                                   const char *batch_id, size_t action) {
    const struct key_caller *caller = http_request_caller(request);
    struct studio_job *job = mem_new(1, sizeof *job);
    json_t *before = read_state(api, batch_id);
    job->api = api;
    job->action = action;
    snprintf(job->batch_id, sizeof job->batch_id, "%s", batch_id);
    snprintf(job->key_id, sizeof job->key_id, "%s", caller->id);
    job->owner_bytes_max = caller->stored_bytes_max;
    memcpy(job->owner, caller->owner, sizeof job->owner);
    job->state = new_state(api, batch_id, "running");
    json_object_set_new(job->state, "action", json_string(studio_actions[action]));
    json_object_set_new(job->state, "started_at", json_integer(clock_unix_s()));
    /* The project of the job before is shown until this one tells its own. */
    json_object_set(job->state, "project", json_object_get(before, "project"));
    json_object_set(job->state, "tasks", json_object_get(before, "tasks"));
    json_decref(before);
    return job;
}

static void start_job(struct api *api, struct http_request *request, const char *batch_id,
                      size_t action) {
    struct studio_job *job = make_job(api, request, batch_id, action);
    enum started started = start(api->studio_jobs, job);
    if (started == STARTED) {
        answer_state(api, request, find_state(api, batch_id));
        return;
    }
    json_decref(job->state);
    free(job);
    if (started == STARTED_NOT_RUNNING)
        api_fail(request, 409, "label_studio_running", NULL,
                 "The batch '%s' is on its way to Label Studio or back already.", batch_id);
    else
        api_fail(request, 429, "rate_limit_exceeded", NULL,
                 "Other batches are on their way to Label Studio; try again later");
}

bool studio_is_running(struct api *api, const char *batch_id) {
    struct studio_jobs *jobs = api->studio_jobs;
    pthread_mutex_lock(&jobs->lock);
    const struct studio_job *job = find(jobs, batch_id);
    bool is_running = job && !job->is_over;
    pthread_mutex_unlock(&jobs->lock);
    return is_running;
}

/* --- routes --- */

void studio_get(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_batch batch;
    if (!batches_find(api, request, &batch)) return;
    answer_state(api, request, find_state(api, batch.id));
    store_batch_release(&batch);
}

static size_t index_of(struct str action) {
    for (size_t i = 0; studio_actions[i]; i++)
        if (action.at && str_is(action, studio_actions[i])) return i;
    return 0;
}

void studio_start(void *context, struct http_request *request) {
    struct api *api = context;
    struct asked asked = {.action = {NULL, 0}};
    struct store_batch batch;
    json_t *body;
    if (!batches_find(api, request, &batch)) return;
    if (!api->options.studio)
        api_fail(request, 400, "label_studio_unset", NULL,
                 "This server has no Label Studio: start it with --label-studio-url, or use the "
                 "command quern label-studio.");
    else if (!api_refuses_new_work(api, request) && api_read_object(request, &body)) {
        if (api_fields_read_all(request, &studio_fields, body, &asked))
            start_job(api, request, batch.id, index_of(asked.action));
        json_decref(body);
    }
    store_batch_release(&batch);
}

/* --- opening and closing --- */

enum err studio_jobs_open(struct api *api, struct error *error) {
    struct studio_jobs *jobs = mem_new(1, sizeof *jobs);
    char folder[PATH_MAX];
    pthread_mutex_init(&jobs->lock, NULL);
    api->studio_jobs = jobs;
    if (!api->options.studio) return OK;
    snprintf(folder, sizeof folder, "%.3500s/label_studio", store_dir(api->options.store));
    return os_mkdirs(folder, error);
}

void studio_jobs_stop(struct api *api) {
    struct studio_jobs *jobs = api->studio_jobs;
    if (!jobs) return;
    pthread_mutex_lock(&jobs->lock);
    jobs->is_stopping = true;
    struct studio_job *job = jobs->first, *next;
    jobs->first = NULL; /* connections that are still open find no job that is being freed */
    pthread_mutex_unlock(&jobs->lock);
    for (; job; job = next) {
        next = job->next;
        pthread_join(job->thread, NULL);
        json_decref(job->state);
        free(job);
    }
}

void studio_jobs_close(struct api *api) {
    struct studio_jobs *jobs = api->studio_jobs;
    if (!jobs) return;
    pthread_mutex_destroy(&jobs->lock);
    free(jobs);
    api->studio_jobs = NULL;
}
