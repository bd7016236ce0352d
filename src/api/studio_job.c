/* SPDX-License-Identifier: Apache-2.0 */

/* One job: its files are written, `quern label-studio` reads them, and its events are kept. */

#include "api/api_internal.h"
#include "api/judgement_body.h"
#include "api/studio.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "curation/deck.h"
#include "curation/judged.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define LINK_HEX 12      /* of the URL's SHA-256, in the name of the link */
#define LINES_A_LOOK 256 /* lines written between two looks whether the job is to end */
#define ROWS_AT_ONCE 64  /* judgements */
#define ROUNDS_MAX 5     /* of a judgement that others of the same curator overtake */
#define EVENT_TREE_BYTES ((size_t)16 << 20)
#define CURATOR_UNKNOWN "label-studio"

struct work {
    struct studio_job *job;
    struct store_batch batch;
    struct deck *deck;
    struct deck_reader reader;
    bool is_open; /* the reader */
    struct store_spool *requests, *results, *judgements;
    enum err err; /* of an event; the job then ends */
    struct error error;
};

/* --- the files --- */

static enum err add_line(struct store_spool *spool, struct buf *text, struct error *error) {
    buf_add_byte(text, '\n');
    enum err err = store_spool_write(spool, text->at, text->bytes, error);
    buf_clear(text);
    return err;
}

/* Writes the requests that have a result, and these. A line that is too long stays here. */
static enum err write_line(struct work *work, uint32_t line, struct buf *request,
                           struct buf *result, struct error *error) {
    enum err err = deck_read_request(&work->reader, line, request, error);
    if (err == OK) err = deck_read_result(&work->reader, line, result, error);
    if (err == OK) err = add_line(work->requests, request, error);
    if (err == OK) err = add_line(work->results, result, error);
    buf_clear(request);
    buf_clear(result);
    return err == ERR_LIMIT ? OK : err;
}

static enum err write_lines(struct work *work, struct error *error) {
    struct buf request, result;
    enum err err = OK;
    buf_init(&request, DECK_TEXT_BYTES_MAX + 1);
    buf_init(&result, DECK_TEXT_BYTES_MAX + 1);
    for (uint32_t i = 0; i < deck_lines(work->deck) && err == OK; i++) {
        if (i % LINES_A_LOOK == 0 && studio_job_is_stopped(work->job))
            err = err_set(error, ERR_CANCELLED, "stopped");
        else if (deck_has_result(work->deck, i))
            err = write_line(work, i, &request, &result, error);
    }
    buf_release(&request);
    buf_release(&result);
    return err;
}

static enum err write_judgements(struct work *work, struct error *error) {
    struct store_judgement rows[ROWS_AT_ONCE];
    struct store_judgement_walk walk = {.batch_id = work->batch.id, .line_last = UINT32_MAX};
    struct buf text;
    size_t count = ROWS_AT_ONCE;
    enum err err = OK;
    buf_init(&text, BUF_UNLIMITED);
    while (err == OK && count == ROWS_AT_ONCE) {
        err = store_judgement_newest(work->job->api->options.store, &walk, ROWS_AT_ONCE, rows,
                                     &count, error);
        if (err != OK) break;
        for (size_t i = 0; i < count && err == OK; i++) {
            judged_write(&text, &rows[i]);
            err = add_line(work->judgements, &text, error);
        }
        store_judgements_release(rows, count);
    }
    buf_release(&text);
    return err;
}

static enum err open_work(struct work *work, struct error *error) {
    struct api *api = work->job->api;
    struct store *store = api->options.store;
    enum err err =
        runner_batch_get(api->options.runner, str_from(work->job->batch_id), &work->batch, error);
    if (err != OK) return err;
    err = deck_take(api->decks, &work->batch, &work->deck, error);
    if (err != OK) return err;
    err = deck_reader_open(&work->reader, work->deck, error);
    work->is_open = err == OK;
    if (err == OK) err = store_spool_open(&work->requests, store, error);
    if (err == OK) err = store_spool_open(&work->results, store, error);
    if (err == OK) err = store_spool_open(&work->judgements, store, error);
    if (err == OK) err = write_lines(work, error);
    return err == OK ? write_judgements(work, error) : err;
}

static void close_work(struct work *work) {
    store_spool_abort(work->requests);
    store_spool_abort(work->results);
    store_spool_abort(work->judgements);
    if (work->is_open) deck_reader_close(&work->reader);
    if (work->deck) deck_drop(work->deck);
    store_batch_release(&work->batch);
}

/* --- judgements --- */

/* Adds the judgement as the next version of its curator. *ret_is_new is false for one that is a row
 * already, which its id tells. */
static enum err add_judgement(struct work *work, struct store_judgement *judgement,
                              bool *ret_is_new, struct error *error) {
    struct store_judgement row;
    enum judgement_added added = JUDGEMENT_OUTDATED;
    for (int round = 0; round < ROUNDS_MAX && added == JUDGEMENT_OUTDATED; round++) {
        enum err err =
            store_judgement_add(work->job->api->options.store, judgement, &added, &row, error);
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

/* Fills the members of a row that the process does not know. False if the line has no result. */
static bool complete(struct work *work, struct store_judgement *judgement) {
    uint32_t line;
    struct error ignored;
    if (deck_find(&work->reader, str_from(judgement->custom_id), &line, &ignored) != OK ||
        !deck_has_result(work->deck, line))
        return false;
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

static void refuse_judgement(struct work *work, const char *reason) {
    json_t *said = json_string(reason);
    studio_job_change(work->job, count_refused, said);
    json_decref(said);
}

/* Keeps what an annotator thinks, under the rules for what a client sends. */
static void take_judgement(struct work *work, const json_t *given) {
    struct store_judgement judgement;
    struct refusal refusal;
    bool is_new = false;
    json_t *body = json_copy((json_t *)(uintptr_t)given);
    if (!body) return;
    json_object_set_new(body, "version", json_integer(0));
    if (!judgement_body_read(&judgement, body, CURATOR_UNKNOWN, &refusal)) {
        refuse_judgement(work, refusal.message);
    } else {
        if (!complete(work, &judgement))
            refuse_judgement(work, "An annotation is of a line that has no result here.");
        else
            work->err = add_judgement(work, &judgement, &is_new, &work->error);
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

static void take_event(void *context, struct str line) {
    static const struct {
        const char *name;
        void (*change)(json_t *state, const json_t *event);
    } changes[] = {{"tasks", take_tasks},
                   {"pulled", take_pulled},
                   {"sent", take_sent},
                   {"said", take_said},
                   {"conflict", take_conflict}};
    struct work *work = context;
    size_t room = EVENT_TREE_BYTES;
    json_t *event;
    struct error ignored;
    if (work->err != OK || json_read_within(&event, line, &room, &ignored) != OK) return;
    struct str name = json_member_str(event, "event");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        if (str_is(name, changes[i].name)) studio_job_change(work->job, changes[i].change, event);
    if (str_is(name, "judgement")) take_judgement(work, json_object_get(event, "judgement"));
    json_decref(event);
}

static bool is_stopped(void *context) {
    const struct work *work = context;
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

static enum err run(struct work *work, struct error *error) {
    const struct api_options *options = &work->job->api->options;
    char link[PATH_MAX];
    name_link(work->job->api, work->batch.id, link);
    const struct api_studio studio = {.batch_id = work->batch.id,
                                      .action = studio_actions[work->job->action],
                                      .link = link,
                                      .requests_fd = store_spool_fd(work->requests),
                                      .results_fd = store_spool_fd(work->results),
                                      .judgements_fd = store_spool_fd(work->judgements),
                                      .context = work,
                                      .stopped = is_stopped,
                                      .event = take_event};
    enum err err = options->studio(options->studio_context, &studio, error);
    if (work->err == OK) return err;
    *error = work->error;
    return work->err;
}

enum err studio_job_run(struct studio_job *job, struct error *error) {
    struct work work = {.job = job};
    enum err err = open_work(&work, error);
    bool is_open = err == OK;
    if (err == OK) err = run(&work, error);
    close_work(&work);
    if (is_open || err == ERR_CANCELLED || err == ERR_NOT_FOUND || err == ERR_UNAVAILABLE)
        return err;
    log_error("batch=%s event=label_studio_failed error=\"%s\"", job->batch_id, error->text);
    return err_set(error, err, "the server cannot read the batch; its log tells why");
}
