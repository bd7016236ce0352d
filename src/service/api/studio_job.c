/* SPDX-License-Identifier: Apache-2.0 */

/* One job: its files are written, `quern label-studio` reads them, and its events are kept. */

#include "answers/answers.h"
#include "api/api_internal.h"
#include "api/judgement_body.h"
#include "api/studio.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "curation/judged.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINK_HEX 12                   /* digits of the URL's SHA-256, in the name of the link */
#define PIECE_BYTES ((size_t)1 << 20) /* results between two tests for the end of the job */
#define CATCH_UP_MS 1000              /* between two such tests while the answers are indexed */
#define ROWS_AT_ONCE 64               /* judgements */
#define ROUNDS_MAX 5                  /* for a judgement that another of its curator overtakes */
#define EVENT_TREE_BYTES ((size_t)16 << 20)
#define CURATOR_UNKNOWN "label-studio"

struct studio_work {
    struct studio_job *job;
    struct store_batch batch;
    struct answers_index *index; /* tells which line a judgement is of */
    char link[PATH_MAX];
    bool is_link_damaged, is_link_busy;
    int requests_fd; /* the input of the batch; -1: not open */
    struct store_spool *results, *judgements;
    enum err err; /* failure in an event; the job then ends */
    struct error error;
};

/* --- the files --- */

/* Writes the durable results, as the output and error files will have them. */
static enum err write_results(struct studio_work *work, struct error *error) {
    struct runner_results *results;
    struct page page = {.lines_max = UINT64_MAX, .bytes_max = UINT64_MAX, .room = PIECE_BYTES};
    struct page_read read;
    struct buf piece;
    enum err err;
    buf_init(&piece, PIECE_BYTES);
    runner_results_open(&results, work->job->api->options.runner, str_from(work->batch.id));
    do {
        buf_clear(&piece);
        err = runner_results_read(results, &page, &piece, &read, error);
        if (err == OK) err = store_spool_write(work->results, piece.at, piece.bytes, error);
        if (err == OK && studio_job_is_stopped(work->job))
            err = err_set(error, ERR_CANCELLED, "stopped");
        page.from = read.next;
    } while (err == OK && piece.bytes > 0);
    runner_results_close(results);
    buf_release(&piece);
    return err;
}

static enum err write_judgements(struct studio_work *work, struct error *error) {
    struct store_judgement rows[ROWS_AT_ONCE];
    struct store_judgement_walk walk = {.batch_id = work->batch.id, .line_last = UINT32_MAX};
    struct buf text;
    size_t count;
    bool has_more = true;
    enum err err = OK;
    buf_init(&text, BUF_UNLIMITED);
    while (err == OK && has_more) {
        err = store_judgement_newest(work->job->api->options.store, &walk, ROWS_AT_ONCE, rows,
                                     &count, &has_more, error);
        if (err != OK) break;
        for (size_t i = 0; i < count && err == OK; i++) {
            judged_write(&text, &rows[i]);
            buf_add_byte(&text, '\n');
            err = store_spool_write(work->judgements, text.at, text.bytes, error);
            buf_clear(&text);
        }
        store_judgements_release(rows, count);
        if (err == OK && studio_job_is_stopped(work->job))
            err = err_set(error, ERR_CANCELLED, "stopped");
    }
    buf_release(&text);
    return err;
}

static enum err open_work(struct studio_work *work, struct error *error) {
    struct api *api = work->job->api;
    struct store *store = api->options.store;
    enum err err =
        runner_batch_get(api->options.runner, str_from(work->job->batch_id), &work->batch, error);
    if (err != OK) return err;
    work->index = answers_take(api->answers, &work->batch);
    err = store_input_open(store, str_from(work->batch.input_file_id), work->batch.created_unix_s,
                           &work->requests_fd, NULL, error);
    if (err == ERR_NOT_FOUND)
        err_set(error, err, "The input file '%s' of this batch was deleted or has expired.",
                work->batch.input_file_id);
    if (err == OK) err = store_spool_open(&work->results, store, error);
    if (err == OK) err = store_spool_open(&work->judgements, store, error);
    if (err == OK) err = write_results(work, error);
    return err == OK ? write_judgements(work, error) : err;
}

static void close_work(struct studio_work *work) {
    if (work->requests_fd >= 0) os_close(work->requests_fd);
    store_spool_abort(work->results);
    store_spool_abort(work->judgements);
    if (work->index) answers_drop(work->index);
    store_batch_release(&work->batch);
}

/* --- judgements --- */

/* Adds the judgement as the next version of its curator. *ret_is_new is false for one that is a row
 * already, which its id tells. */
static enum err add_judgement(struct studio_work *work, struct store_judgement *judgement,
                              bool *ret_is_new, struct error *error) {
    struct store_judgement row;
    struct store_judgement_limits limits = store_judgement_limits_usual;
    enum judgement_added added = JUDGEMENT_OUTDATED;
    limits.owner_bytes = work->job->owner_bytes_max;
    for (int round = 0; round < ROUNDS_MAX && added == JUDGEMENT_OUTDATED; round++) {
        enum err err = store_judgement_add(work->job->api->options.store, judgement, &limits,
                                           &added, &row, error);
        if (err != OK) return err;
        judgement->version = row.version + 1;
        store_judgement_release(&row);
    }
    *ret_is_new = added == JUDGEMENT_ADDED;
    return added == JUDGEMENT_OUTDATED
               ? err_set(error, ERR_CONFLICT, "other judgements of '%s' come at the same time",
                         judgement->curator)
               : OK;
}

/* The line of a judgement; ANSWERS_NO_LINE if it has no result. Waits for the index of a long
 * batch, which takes some 10 s for 1,000,000 lines. */
static uint32_t find_line(struct studio_work *work, struct str custom_id) {
    struct answers_state state;
    bool is_read = false; /* every result has its row */
    uint32_t line;
    while ((line = answers_find_line(work->index, custom_id)) == ANSWERS_NO_LINE && !is_read &&
           work->err == OK) {
        is_read = answers_catch_up(work->index, CATCH_UP_MS);
        answers_state(work->index, &state);
        work->err = state.err;
        work->error = state.error;
        if (studio_job_is_stopped(work->job))
            work->err = err_set(&work->error, ERR_CANCELLED, "stopped");
    }
    return line;
}

/* Fills the members of a row that the process does not know. False if the line has no result. */
static bool complete(struct studio_work *work, struct store_judgement *judgement) {
    uint32_t line = find_line(work, str_from(judgement->custom_id));
    if (line == ANSWERS_NO_LINE) return false;
    judgement->line = (uint64_t)line + 1;
    memcpy(judgement->batch_id, work->batch.id, sizeof judgement->batch_id);
    snprintf(judgement->key_id, sizeof judgement->key_id, "%s", work->job->key_id);
    judgement->created_unix_s = clock_unix_s();
    return true;
}

static void count(json_t *state, const char *name) {
    const json_t *value = json_object_get(state, name);
    json_object_set_new(state, name, json_integer(json_integer_value(value) + 1));
}

static void count_judgement(json_t *state, const json_t *event) {
    (void)event;
    count(state, "judgements");
}

static void count_refused(json_t *state, const json_t *event) {
    count(state, "refused");
    if (event) json_object_set(state, "said", (json_t *)(uintptr_t)event);
}

static void refuse_judgement(struct studio_work *work, const char *reason) {
    json_t *said = json_string(reason);
    studio_job_change(work->job, count_refused, said);
    json_decref(said);
}

/* Keeps the opinion of an annotator, under the rules of a client's judgement. */
static void take_judgement(struct studio_work *work, const json_t *given) {
    struct store_judgement judgement;
    struct refusal refusal;
    bool is_new = false;
    json_t *body = json_copy((json_t *)(uintptr_t)given);
    if (!body) return;
    json_object_set_new(body, "version", json_integer(0));
    if (!judgement_body_read(&judgement, body, CURATOR_UNKNOWN, &refusal)) {
        refuse_judgement(work, refusal.message);
    } else {
        if (!complete(work, &judgement)) {
            if (work->err == OK)
                refuse_judgement(work, "An annotation is of a line that has no result here.");
        } else {
            work->err = add_judgement(work, &judgement, &is_new, &work->error);
            if (work->err == ERR_INVALID || work->err == ERR_LIMIT) {
                refuse_judgement(work, work->error.text); /* as many as are allowed */
                work->err = OK;
            }
        }
        store_judgement_release(&judgement);
    }
    if (is_new) studio_job_change(work->job, count_judgement, NULL);
    json_decref(body);
}

/* --- events --- */

static void take_tasks(json_t *state, const json_t *event) {
    json_object_set(state, "project", json_object_get(event, "project"));
    json_object_set(state, "tasks", json_object_get(event, "tasks"));
}

static void take_pulled(json_t *state, const json_t *event) {
    json_object_set(state, "fetched", json_object_get(event, "pulled"));
}

static void take_sent(json_t *state, const json_t *event) {
    json_object_set(state, "sent", json_object_get(event, "sent"));
}

static void take_said(json_t *state, const json_t *event) {
    json_object_set(state, "said", json_object_get(event, "text"));
}

static void take_conflict(json_t *state, const json_t *event) {
    json_t *texts = json_object_get(state, "conflict_texts");
    count(state, "conflicts");
    if (json_array_size(texts) < STUDIO_CONFLICTS_SHOWN)
        json_array_append(texts, json_object_get(event, "text"));
}

static void take_link(struct studio_work *work, const json_t *event) {
    struct str state = json_member_str(event, "state");
    work->is_link_damaged = str_is(state, "damaged");
    work->is_link_busy = str_is(state, "busy");
}

static void take_event(void *context, struct str line) {
    static const struct {
        const char *name;
        void (*change)(json_t *state, const json_t *event);
    } changes[] = {{"tasks", take_tasks},
                   {"pulled", take_pulled},
                   {"sent", take_sent},
                   {"said", take_said},
                   {"conflict", take_conflict}};
    struct studio_work *work = context;
    size_t room = EVENT_TREE_BYTES;
    json_t *event;
    struct error ignored;
    if (work->err != OK) return;
    if (json_read_within(&event, line, &room, &ignored) != OK) {
        refuse_judgement(work, "An annotation is too large to be a judgement.");
        return;
    }
    struct str name = json_member_str(event, "event");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        if (str_is(name, changes[i].name)) studio_job_change(work->job, changes[i].change, event);
    if (str_is(name, "judgement")) take_judgement(work, json_object_get(event, "judgement"));
    if (str_is(name, "link")) take_link(work, event);
    json_decref(event);
}

static bool is_stopped(void *context) {
    const struct studio_work *work = context;
    return work->err != OK || studio_job_is_stopped(work->job);
}

static void name_link(const struct api *api, const char *batch_id, char ret_path[PATH_MAX]) {
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, api->options.studio_url, strlen(api->options.studio_url));
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    snprintf(ret_path, PATH_MAX, "%.3500s/label_studio/%s-%.*s.jsonl",
             store_dir(api->options.store), batch_id, LINK_HEX, hex);
}

/* The error of a job, for its client. A damaged link is removed, because Label Studio itself tells
 * what a new one needs. Any other link stays: it may name a chunk that is on its way. */
static enum err judge(const struct studio_work *work, enum err err, struct error *error) {
    struct error ignored;
    if (work->is_link_busy)
        return err_set(error, ERR_CONFLICT, "another process works on this batch; try again later");
    if (work->is_link_damaged) {
        (void)!os_unlink(work->link, &ignored);
        return err_set(error, ERR_CORRUPT,
                       "the record of sent answers was damaged, and is removed; start again");
    }
    /* The link's path is no client's business. */
    if (!strstr(error->text, work->link)) return err;
    log_error("batch=%s event=label_studio_failed error=\"%s\"", work->batch.id, error->text);
    return err_set(error, err, "the server cannot use its notes of this batch; its log says why");
}

static enum err run(struct studio_work *work, struct error *error) {
    const struct api_options *options = &work->job->api->options;
    name_link(work->job->api, work->batch.id, work->link);
    const struct api_studio studio = {.batch_id = work->batch.id,
                                      .action = studio_actions[work->job->action],
                                      .link = work->link,
                                      .requests_fd = work->requests_fd,
                                      .results_fd = store_spool_fd(work->results),
                                      .judgements_fd = store_spool_fd(work->judgements),
                                      .context = work,
                                      .stopped = is_stopped,
                                      .event = take_event};
    enum err err = options->studio(options->studio_context, &studio, error);
    if (work->err == OK) return err == OK ? OK : judge(work, err, error);
    *error = work->error;
    return work->err;
}

enum err studio_job_run(struct studio_job *job, struct error *error) {
    struct studio_work work = {.job = job, .requests_fd = -1};
    enum err err = open_work(&work, error);
    bool is_open = err == OK;
    if (err == OK) err = run(&work, error);
    close_work(&work);
    /* Its batch was deleted meanwhile, and nothing of it stays. */
    if (is_open && !store_batch_exists(job->api->options.store, job->batch_id)) unlink(work.link);
    if (is_open || err == ERR_CANCELLED || err == ERR_NOT_FOUND || err == ERR_UNAVAILABLE)
        return err;
    log_error("batch=%s event=label_studio_failed error=\"%s\"", job->batch_id, error->text);
    return err_set(error, err, "the server cannot read the batch; its log says why");
}
