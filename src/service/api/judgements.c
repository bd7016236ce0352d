/* SPDX-License-Identifier: Apache-2.0 */

/* Judgements of curators on the lines of a batch (an extension): the routes of
 * /v1/batches/{id}/judgements. */

#include "answers/answers.h"
#include "api/api_internal.h"
#include "api/judgement_body.h"

#include "base/clock.h"
#include "base/mem.h"
#include "batch/state.h"
#include "curation/export.h"
#include "curation/judged.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CATCH_UP_MS 2000      /* for the result of a line that is being judged */
#define EXPORT_WAIT_MS 120000 /* for the results of all lines; 1,000,000 take some 10 s */
#define LIST_DEFAULT 100
#define LIST_MAX 1000
#define ROWS_AT_ONCE 16
#define PAGE_BYTES ((size_t)4 << 20) /* a page ends with the piece that reaches it */
#define PAGE_ROUNDS 256 /* pieces that one page reads: 1,048,576 rows that a filter leaves out */
#define EXPORT_BYTES_MAX ((uint64_t)16 << 30) /* a batch of 2 GiB of lines, judged by a few */

const char *judgements_curator(const struct http_request *request) {
    const struct key_caller *caller = http_request_caller(request);
    return *caller->id ? caller->id : "owner";
}

/* --- POST --- */

/* ERR_NOT_FOUND: the result files are gone. ERR_CORRUPT: the record is damaged, and the line runs
 * again. */
static enum err check_result(struct answers_index *index, uint32_t line, struct error *error) {
    struct answers_reader *reader;
    struct buf none;
    uint64_t bytes;
    buf_init(&none, 1);
    answers_reader_open(&reader, index);
    enum err err = answers_read_result(reader, line, 0, &none, &bytes, error);
    answers_reader_close(reader);
    buf_release(&none);
    return err;
}

/* Answers that no row has the custom_id: the line does not exist, was erased, or has no result yet.
 */
static void fail_line(struct http_request *request, const struct store_batch *batch,
                      const struct answers_state *state, const char *custom_id) {
    bool has_ended = batch_status_is_terminal(batch->status);
    if (has_ended || (state->indexed == batch->total && batch->total > 0))
        api_fail(request, 404, "line_not_found", "custom_id",
                 "The batch '%s' has no line with the custom_id '%.100s'.", batch->id, custom_id);
    else
        api_fail(request, 409, "line_not_done", "custom_id",
                 "No line with the custom_id '%.100s' has a result yet.", custom_id);
}

/* Finds the line of a judgement. False, with an answer sent, if no line with a result has the
 * custom_id. */
static bool find_line(struct api *api, struct http_request *request,
                      const struct store_batch *batch, struct store_judgement *judgement) {
    struct answers_state state;
    struct error error;
    struct str custom_id = str_from(judgement->custom_id);
    struct answers_index *index = answers_take(api->answers, batch);
    uint32_t line = answers_find_line(index, custom_id);
    bool is_whole = line != ANSWERS_NO_LINE || answers_catch_up(index, CATCH_UP_MS);
    if (line == ANSWERS_NO_LINE) line = answers_find_line(index, custom_id);
    answers_state(index, &state);
    enum err err = state.err;
    if (err != OK)
        error = state.error;
    else if (line != ANSWERS_NO_LINE)
        err = check_result(index, line, &error);
    answers_drop(index);
    judgement->line = (uint64_t)line + 1;
    if (err == OK && line != ANSWERS_NO_LINE) return true;
    if (err == ERR_CORRUPT)
        api_fail(request, 409, "line_not_done", "custom_id",
                 "The line with the custom_id '%.100s' runs again, because its record is damaged.",
                 judgement->custom_id);
    else if (err != OK)
        api_fail_err(request, err, &error, NULL);
    else if (!is_whole)
        api_fail(request, 503, "answers_not_read", NULL,
                 "The answers of this batch are being read, %" PRIu64 " so far; try again later.",
                 state.indexed);
    else
        fail_line(request, batch, &state, judgement->custom_id);
    return false;
}

static void answer_added(struct http_request *request, const struct store_judgement *judgement,
                         enum judgement_added added, const struct store_judgement *row) {
    struct buf body;
    switch (added) {
    case JUDGEMENT_ADDED:
    case JUDGEMENT_KNOWN:
        buf_init(&body, BUF_UNLIMITED);
        judged_write(&body, row);
        api_answer_json(request, &body);
        return;
    case JUDGEMENT_ID_TAKEN:
        api_fail(request, 409, "id_conflict", "id",
                 "The id '%s' was used for another judgement: version %" PRIu32
                 " of '%s' on the line with the custom_id '%.100s'.",
                 row->id, row->version, row->curator, row->custom_id);
        return;
    case JUDGEMENT_OUTDATED:
        api_fail(request, 409, "version_conflict", "version",
                 "This judgement was made after version %" PRIu32 " of '%s' on the line with the "
                 "custom_id '%.100s', and the newest version is %" PRIu32 ".",
                 judgement->version - 1, judgement->curator, judgement->custom_id, row->version);
        return;
    }
}

static void create(struct api *api, struct http_request *request, const struct store_batch *batch,
                   struct store_judgement *judgement) {
    struct store_judgement row;
    enum judgement_added added;
    struct error error;
    if (!find_line(api, request, batch, judgement)) return;
    memcpy(judgement->batch_id, batch->id, sizeof judgement->batch_id);
    snprintf(judgement->key_id, sizeof judgement->key_id, "%s", http_request_caller(request)->id);
    judgement->created_unix_s = clock_unix_s();
    struct store_judgement_limits limits = store_judgement_limits_usual;
    limits.owner_bytes = http_request_caller(request)->stored_bytes_max;
    enum err err =
        store_judgement_add(api->options.store, judgement, &limits, &added, &row, &error);
    if (err != OK) {
        if (err == ERR_LIMIT)
            api_fail_quota(request, error.text);
        else if (err == ERR_INVALID)
            api_fail_param(request, "too_many_judgements", "custom_id", "%s", error.text);
        else
            api_fail_err(request, err, &error, NULL);
        return;
    }
    answer_added(request, judgement, added, &row);
    store_judgement_release(&row);
}

void judgements_create(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_batch batch;
    struct store_judgement judgement;
    struct refusal refusal;
    json_t *body;
    if (!batches_find(api, request, &batch)) return;
    if (api_read_object(request, &body)) {
        if (judgement_body_read(&judgement, body, judgements_curator(request), &refusal)) {
            create(api, request, &batch, &judgement);
            store_judgement_release(&judgement);
        } else {
            api_refuse(request, &refusal);
        }
        json_decref(body);
    }
    store_batch_release(&batch);
}

/* --- the trail --- */

static bool read_after(struct http_request *request, uint64_t *ret_after) {
    struct str text = http_request_query(request, "after");
    *ret_after = 0;
    if (!text.at || str_to_u64(text, ret_after)) return true;
    api_fail_param(request, "invalid_type", "after",
                   "Invalid value for 'after': expected the 'seq' of a judgement, got '%.100s'.",
                   api_text(request, text));
    return false;
}

/* Appends at most `limit` rows, until the page is full, the trail ends, or PAGE_ROUNDS pieces of it
 * are read. Moves query->after behind the rows. */
static enum err write_rows(struct api *api, struct store_judgement_query *query, size_t limit,
                           struct buf *body, bool *ret_has_more, struct error *error) {
    struct store_judgement rows[ROWS_AT_ONCE];
    size_t count, written = 0;
    *ret_has_more = true;
    for (size_t round = 0;
         round < PAGE_ROUNDS && *ret_has_more && written < limit && body->bytes < PAGE_BYTES;
         round++) {
        size_t wanted = limit - written < ROWS_AT_ONCE ? limit - written : ROWS_AT_ONCE;
        enum err err = store_judgement_list(api->options.store, query, wanted, rows, &count,
                                            ret_has_more, error);
        if (err != OK) return err;
        for (size_t i = 0; i < count; i++) {
            if (written++ > 0) buf_add_byte(body, ',');
            judged_write(body, &rows[i]);
        }
        store_judgements_release(rows, count);
    }
    return OK;
}

void judgements_list(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_batch batch;
    struct error error;
    struct buf body;
    size_t limit;
    bool has_more;
    struct store_judgement_query query = {.custom_id = http_request_query(request, "custom_id"),
                                          .curator = http_request_query(request, "curator")};
    if (!read_after(request, &query.after) ||
        !api_read_limit(request, LIST_DEFAULT, LIST_MAX, &limit) ||
        !batches_find(api, request, &batch))
        return;
    query.batch_id = batch.id;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"object\":\"list\",\"data\":[");
    enum err err = write_rows(api, &query, limit, &body, &has_more, &error);
    buf_printf(&body, "],\"has_more\":%s,\"after\":%" PRIu64 "}", has_more ? "true" : "false",
               query.after);
    if (err == OK) {
        api_answer_json(request, &body);
    } else {
        buf_release(&body);
        api_fail_err(request, err, &error, NULL);
    }
    store_batch_release(&batch);
}

void judgements_summary(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_batch batch;
    struct error error;
    struct buf body;
    if (!batches_find(api, request, &batch)) return;
    buf_init(&body, BUF_UNLIMITED);
    enum err err =
        judged_write_summary(&body, api->options.store, batch.id, api_is_gone, request, &error);
    store_batch_release(&batch);
    if (err == OK) {
        api_answer_json(request, &body);
    } else {
        buf_release(&body);
        api_fail_err(request, err, &error, NULL);
    }
}

/* --- exports --- */

/* Reads the form of an export (default jsonl). False, with an answer sent, for an unknown form. */
static bool read_form(struct http_request *request, enum export_form *ret_form) {
    struct str text = http_request_query(request, "format");
    for (size_t i = 0; export_names[i]; i++) {
        if (text.at && !str_is(text, export_names[i])) continue;
        *ret_form = (enum export_form)i;
        return true;
    }
    api_fail_param(request, "invalid_value", "format",
                   "Invalid value for 'format': '%.100s'. Supported values are: 'jsonl', "
                   "'few_shot', 'calibrate' and 'compare'.",
                   api_text(request, text));
    return false;
}

/* Writes the export. As jsonl, a batch without files has one, too. */
static enum err make_export(struct api *api, struct http_request *request,
                            const struct store_batch *batch, enum export_form form,
                            struct store_spool *spool, struct error *error) {
    struct answers_state state;
    struct review_lines lines = {.batch_id = batch->id};
    struct export_options options = {.form = form,
                                     .store = api->options.store,
                                     .batch_id = batch->id,
                                     .large = &api->large,
                                     .bytes_max = EXPORT_BYTES_MAX,
                                     .is_gone = api_is_gone,
                                     .context = request};
    lines.index = answers_take(api->answers, batch);
    bool is_whole = answers_catch_up(lines.index, EXPORT_WAIT_MS);
    answers_state(lines.index, &state);
    enum err err = state.err;
    if (err != OK)
        *error = state.error;
    else if (!is_whole)
        err = err_set(error, ERR_UNAVAILABLE, "the answers are being read");
    if (err == OK) {
        answers_reader_open(&lines.reader, lines.index);
        options.lines = &lines;
    }
    if (err == OK || (err == ERR_NOT_FOUND && form == EXPORT_JSONL))
        err = export_write(spool, &options, error);
    answers_reader_close(lines.reader);
    answers_drop(lines.index);
    return err;
}

/* A spool on its way to the client. */
struct download {
    struct store_spool *spool;
    uint64_t at;
};

static bool read_piece(void *context, size_t room, struct buf *buf) {
    struct download *download = context;
    struct error error;
    uint64_t left = store_spool_bytes(download->spool) - download->at;
    size_t count = left < room ? (size_t)left : room;
    char *bytes = buf_reserve(buf, count);
    if (!bytes || store_spool_read(download->spool, bytes, count, download->at, &error) != OK)
        return false;
    buf_commit(buf, count);
    download->at += count;
    return true;
}

static void release_download(void *context) {
    struct download *download = context;
    store_spool_abort(download->spool);
    free(download);
}

static void answer_spool(struct http_request *request, struct store_spool *spool) {
    const struct http_answer answer = {.status = 200, .content_type = "application/jsonl"};
    struct buf first;
    if (store_spool_bytes(spool) == 0) {
        store_spool_abort(spool);
        http_answer(request, &answer);
        return;
    }
    struct download *download = mem_new(1, sizeof *download);
    download->spool = spool;
    buf_init(&first, HTTP_PIECE_BYTES);
    http_answer_source(request, &answer, &first,
                       &(struct http_source){.bytes = store_spool_bytes(spool),
                                             .context = download,
                                             .read = read_piece,
                                             .release = release_download});
}

void judgements_export(void *context, struct http_request *request) {
    struct api *api = context;
    struct store_batch batch;
    struct store_spool *spool;
    struct error error;
    enum export_form form;
    if (!read_form(request, &form) || !batches_find(api, request, &batch)) return;
    enum err err = store_spool_open(&spool, api->options.store, &error);
    if (err == OK) {
        err = make_export(api, request, &batch, form, spool, &error);
        if (err != OK) store_spool_abort(spool);
    }
    store_batch_release(&batch);
    if (err == OK)
        answer_spool(request, spool);
    else if (err == ERR_LIMIT)
        api_fail(request, 413, "export_too_large", NULL, "%s", error.text);
    else
        api_fail_err(request, err, &error, NULL);
}
