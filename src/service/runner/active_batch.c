/* SPDX-License-Identifier: Apache-2.0 */

/* The batches that are on their way: taking them up, moving their states, ending them. */

#include "runner/active_batch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "batch/quality.h"
#include "batch/validate.h"
#include "runner/runner_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOAD_AGAIN_NS 1000000000
#define TOKEN_BYTES 4 /* bytes of input per token: a guess until the batch's tokens are known */

struct active_batch *active_find(struct runner *runner, struct str id) {
    for (struct active_batch *batch = runner->batches; batch; batch = batch->next)
        if (str_is(id, batch->row.id)) return batch;
    return NULL;
}

static bool is_sooner(const struct active_batch *a, const struct active_batch *b) {
    if (a->row.priority != b->row.priority) return a->row.priority < b->row.priority;
    return a->row.sequence < b->row.sequence;
}

static void insert(struct runner *runner, struct active_batch *batch) {
    struct active_batch **at = &runner->batches;
    while (*at && !is_sooner(batch, *at)) at = &(*at)->next;
    batch->next = *at;
    *at = batch;
}

static void take_up(struct runner *runner, struct active_batch *batch) {
    struct error error;
    if (batch->row.status == BATCH_VALIDATING) {
        batch->phase = PHASE_VALIDATE;
        return;
    }
    if (batch->row.total == 0) { /* cancelled before it was validated */
        batch->phase = PHASE_PUBLISH;
        return;
    }
    enum err err = active_load(runner, batch, &error);
    if (err == OK) {
        active_start_lines(runner, batch);
        return;
    }
    if (err == ERR_UNAVAILABLE) store_disk_filled(runner->store);
    log_error("batch=%s event=load_failed error=\"%s\", trying again", batch->row.id, error.text);
    batch->phase = PHASE_VALIDATE;
    batch->due_ns = clock_monotonic_ns() + LOAD_AGAIN_NS;
}

void active_adopt(struct runner *runner, struct store_batch *row) {
    struct active_batch *batch = mem_new(1, sizeof *batch);
    batch->row = *row;
    batch->is_taken_up = !runner->is_started;
    batch_extras_parse(row->extras, &batch->extras);
    batch->blocked_at = UINT64_MAX;
    batch->progress.since_ns = clock_monotonic_ns();
    if (!endpoint_find(str_from(row->endpoint), &batch->endpoint)) batch->endpoint = ENDPOINT_CHAT;
    insert(runner, batch);
    take_up(runner, batch);
    pthread_cond_broadcast(&runner->helpers);
    pthread_cond_signal(&runner->work);
}

void active_free(struct active_batch *batch) {
    assert(batch->in_flight == 0 && batch->readers == 0);
    index_close(batch->index);
    seglog_close(batch->log);
    runs_release(&batch->runs);
    leases_release(&batch->leases);
    waiting_for_model_close(batch->waiting);
    free(batch->pending);
    free(batch->adopted);
    store_batch_release(&batch->row);
    free(batch);
}

void active_leave_order(struct runner *runner, struct active_batch *batch) {
    runner->queue->ops->remove(runner->queue, batch->row.sequence);
    order_remove(&runner->order, &batch->order);
    if (runner->current == batch) runner->current = NULL;
    leases_release(&batch->leases);
    waiting_for_model_clear(batch->waiting);
}

void active_remove(struct runner *runner, struct active_batch *batch) {
    struct active_batch **at = &runner->batches;
    while (*at != batch) at = &(*at)->next;
    *at = batch->next;
    active_leave_order(runner, batch);
    batch->is_removed = true;
    if (batch->readers == 0) active_free(batch);
    pthread_cond_broadcast(&runner->idle);
}

void active_leave(struct active_batch *batch) {
    assert(batch->readers > 0);
    if (--batch->readers == 0 && batch->is_removed) active_free(batch);
}

/* --- loading --- */

static void report_log(void *context, const char *sentence) {
    (void)context;
    log_error("event=log_corrupt %s", sentence);
}

static bool serves_all(void *context, struct str model) {
    (void)context, (void)model;
    return true;
}

static bool any_model(void *context, char ret_model[MODEL_NAME_BYTES]) {
    (void)context;
    memcpy(ret_model, "any", sizeof "any");
    return true;
}

/* Makes the line index once more from the input, which was found good before. */
static enum err rebuild_index(const struct active_batch *batch, const char *path, int input_fd,
                              uint64_t input_bytes, struct error *error) {
    struct batch_validation result;
    struct batch_validate_options options = {.input_fd = input_fd,
                                             .input_bytes = input_bytes,
                                             .input_sha256 = batch->input_sha256,
                                             .index_path = path,
                                             .endpoint = batch->endpoint,
                                             .rules = batch_rules_default(),
                                             .serves = serves_all,
                                             .default_model = any_model};
    enum err err = batch_validate(&options, &result, error);
    if (err == OK && (result.errors || result.total != batch->row.total))
        err = err_set(error, ERR_CORRUPT, "the input of batch %s is not what was validated",
                      batch->row.id);
    batch_validation_release(&result);
    return err;
}

static enum err open_index(struct runner *runner, struct active_batch *batch, int input_fd,
                           uint64_t input_bytes, struct error *error) {
    char dir[4096], path[4200];
    enum err err = store_batch_dir(runner->store, batch->row.id, dir, sizeof dir, error);
    if (err != OK) return err;
    snprintf(path, sizeof path, "%s/lines.idx", dir);
    err = index_open(&batch->index, path, batch->input_sha256, error);
    if (err == OK && index_count(batch->index) == batch->row.total) return OK;
    if (err != OK && err != ERR_CORRUPT && err != ERR_NOT_FOUND) return err;
    log_warn("batch=%s event=index_rebuilt", batch->row.id);
    index_close(batch->index);
    batch->index = NULL;
    err = rebuild_index(batch, path, input_fd, input_bytes, error);
    return err == OK ? index_open(&batch->index, path, batch->input_sha256, error) : err;
}

/* The input is open only for this: a batch that waits holds no descriptor. */
static enum err find_index(struct runner *runner, struct active_batch *batch, struct error *error) {
    struct store_file file;
    uint64_t input_bytes;
    int fd;
    enum err err = store_input_open(runner->store, str_from(batch->row.input_file_id),
                                    batch->row.created_unix_s, &fd, &file, error);
    if (err != OK) return err;
    memcpy(batch->input_sha256, file.sha256, SHA256_BYTES);
    err = os_file_bytes(fd, &input_bytes, error);
    if (err == OK) err = open_index(runner, batch, fd, input_bytes, error);
    os_close(fd);
    return err;
}

static enum err open_parts(struct runner *runner, struct active_batch *batch, struct error *error) {
    enum err err = batch->index ? OK : find_index(runner, batch, error);
    if (err != OK || batch->log) return err;
    struct seglog_options options = {.batch_id = batch->row.id,
                                     .batch_sequence = batch->row.sequence,
                                     .line_count = batch->row.total,
                                     .report = report_log};
    memcpy(options.input_sha256, batch->input_sha256, SHA256_BYTES);
    return seglog_open(&batch->log, runner->store, &options, error);
}

enum err active_load(struct runner *runner, struct active_batch *batch, struct error *error) {
    enum err err = open_parts(runner, batch, error);
    if (err != OK) return err;
    struct store_batch row = batch->row;
    row.epoch++;
    err = store_batch_update(runner->store, &row, row.status, NULL, error);
    if (err != OK) return err;
    batch->row.epoch = row.epoch;
    if (!batch->runs.at) runs_make(&batch->runs, batch->index);
    runner->counters.recovered_lines += seglog_counts(batch->log).recovered;
    return OK;
}

uint64_t active_lines_done(struct active_batch *batch) {
    struct seglog_counts counts = seglog_counts(batch->log);
    return counts.successes + counts.errors + counts.others;
}

/* Batches of one model compete for the same engines (FNV-1a of its name). */
static uint64_t pool_of(const char *model) {
    uint64_t sum = 0xCBF29CE484222325u;
    for (; *model; model++) sum = (sum ^ (unsigned char)*model) * 0x100000001B3u;
    return sum;
}

/* Guesses the tokens of a line from the size of the file, until answers tell them. */
static double guess_line_cost(const struct line_index *index) {
    uint32_t count = index_count(index);
    if (count == 0) return 1;
    struct index_entry last = index_entry(index, count - 1);
    return (double)(last.offset + last.bytes) / count / TOKEN_BYTES;
}

/* Begins the giving of the batch's lines. */
static void join_order(struct runner *runner, struct active_batch *batch) {
    active_leave_order(runner, batch);
    struct queue_work work = {.batch = batch->row.sequence,
                              .epoch = batch->row.epoch,
                              .count = index_count(batch->index)};
    runner->queue->ops->add(runner->queue, &work);
    batch->order = (struct order_entry){.owner = batch,
                                        .age = batch->row.sequence,
                                        .tier = tier_of_batch(batch->row.service_tier),
                                        .priority = batch->row.priority,
                                        .pool = pool_of(batch->row.model),
                                        .deadline_unix_s = batch->row.expires_unix_s,
                                        .lines_done = active_lines_done(batch),
                                        .lines_total = batch->row.total,
                                        .line_cost = guess_line_cost(batch->index)};
    order_add(&runner->order, &batch->order);
    runner->is_reordered = true;
}

void active_start_lines(struct runner *runner, struct active_batch *batch) {
    bool runs =
        batch->row.status == BATCH_IN_PROGRESS ||
        (batch->row.status == BATCH_FINALIZING && batch->row.final_status == BATCH_COMPLETED);
    batch->stop = false;
    batch->deadline_ns = 0;
    batch->phase = runs ? PHASE_RUN : PHASE_END;
    if (runs) join_order(runner, batch);
}

/* --- moving --- */

enum err active_move(struct runner *runner, struct active_batch *batch, enum batch_status to,
                     struct error *error) {
    struct store_batch row = batch->row;
    batch_move(&row, to, runner_now_unix_s(runner));
    enum err err = store_batch_update(runner->store, &row, batch->row.status, NULL, error);
    if (err != OK) return err;
    /* Only the members that a move changes: other threads read the rest without the lock. */
    batch->row.status = row.status;
    batch->row.in_progress_unix_s = row.in_progress_unix_s;
    batch->row.finalizing_unix_s = row.finalizing_unix_s;
    batch->row.failed_unix_s = row.failed_unix_s;
    batch->row.cancelling_unix_s = row.cancelling_unix_s;
    return OK;
}

void active_put_back(struct active_batch *batch, const struct line_state *line) {
    batch->pending = vec_grow(batch->pending, batch->pending_count, &batch->pending_capacity,
                              sizeof *batch->pending);
    batch->pending[batch->pending_count] = *line;
    batch->pending[batch->pending_count].leased_by = 0;
    batch->pending[batch->pending_count++].goes_to = 0;
}

uint32_t active_attempts_max(const struct runner *runner, const struct active_batch *batch) {
    return batch->extras.attempts ? batch->extras.attempts : runner->options.attempts_max;
}

bool active_is_paused(const struct active_batch *batch) {
    bool paused = batch->row.paused == BATCH_PAUSED_BY_REQUEST ||
                  batch->row.paused == BATCH_PAUSED_BY_QUALITY;
    return paused && batch->row.status == BATCH_IN_PROGRESS;
}

char *active_quality(struct active_batch *batch) {
    struct buf text;
    struct seglog_counts counts = seglog_counts(batch->log);
    buf_init(&text, 4096);
    quality_write(&text, &counts, &batch->extras);
    char *copy = mem_text(text.at);
    buf_release(&text);
    return copy;
}

void active_copy_row(struct active_batch *batch, struct store_batch *ret_batch) {
    struct store_batch row = batch->row;
    row.metadata = mem_text(row.metadata);
    row.webhook_url = mem_text(row.webhook_url);
    row.errors = mem_text(row.errors);
    row.extras = mem_text(row.extras);
    row.quality = mem_text(row.quality);
    if (batch->log) {
        struct seglog_counts counts = seglog_counts(batch->log);
        free(row.quality);
        row.quality = active_quality(batch);
        /* Lines that run again after damage were counted before. */
        row.completed = counts.successes < row.total ? counts.successes : row.total;
        uint64_t left = row.total - row.completed;
        row.failed = counts.errors < left ? counts.errors : left;
        row.usage = counts.usage;
    }
    memcpy(row.waiting_for, batch->progress.waiting_for, sizeof row.waiting_for);
    if (*batch->awaits_model && batch->row.status == BATCH_VALIDATING)
        snprintf(row.waiting_for, sizeof row.waiting_for, "a worker that serves '%.100s'",
                 batch->awaits_model);
    if (active_is_paused(batch))
        snprintf(row.waiting_for, sizeof row.waiting_for, "its owner: it is paused");
    *ret_batch = row;
}
