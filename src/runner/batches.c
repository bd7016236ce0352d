/* SPDX-License-Identifier: Apache-2.0 */

/* The batches that are on their way: taking them up, moving their states, ending them. */

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "runner/runner_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOAD_AGAIN_NS 1000000000
#define TOKEN_BYTES 4 /* that stand for a token until a batch's own are known */

struct live *live_find(struct runner *runner, struct str id) {
    for (struct live *live = runner->live; live; live = live->next)
        if (str_is(id, live->row.id)) return live;
    return NULL;
}

static bool is_sooner(const struct live *a, const struct live *b) {
    if (a->row.priority != b->row.priority) return a->row.priority < b->row.priority;
    return a->row.sequence < b->row.sequence;
}

static void insert(struct runner *runner, struct live *live) {
    struct live **at = &runner->live;
    while (*at && !is_sooner(live, *at)) at = &(*at)->next;
    live->next = *at;
    *at = live;
}

static void take_up(struct runner *runner, struct live *live) {
    struct error error;
    if (live->row.status == BATCH_VALIDATING) {
        live->phase = PHASE_VALIDATE;
        return;
    }
    if (live->row.total == 0) { /* cancelled before it was validated */
        live->phase = PHASE_PUBLISH;
        return;
    }
    enum err err = live_load(runner, live, &error);
    if (err == OK) {
        live_start_lines(runner, live);
        return;
    }
    if (err == ERR_UNAVAILABLE) store_disk_filled(runner->store);
    log_error("batch=%s event=load_failed error=\"%s\", trying again", live->row.id, error.text);
    live->phase = PHASE_VALIDATE;
    live->due_ns = clock_monotonic_ns() + LOAD_AGAIN_NS;
}

void live_adopt(struct runner *runner, struct store_batch *row) {
    struct live *live = mem_new(1, sizeof *live);
    live->row = *row;
    batch_extras_parse(row->extras, &live->extras);
    live->input_fd = -1;
    live->blocked_at = UINT64_MAX;
    live->progress.since_ns = clock_monotonic_ns();
    if (!endpoint_find(str_from(row->endpoint), &live->endpoint)) live->endpoint = ENDPOINT_CHAT;
    insert(runner, live);
    take_up(runner, live);
    pthread_cond_broadcast(&runner->helpers);
    pthread_cond_signal(&runner->work);
}

void live_free(struct live *live) {
    assert(live->in_flight == 0 && live->readers == 0);
    index_close(live->index);
    seglog_close(live->log);
    os_close(live->input_fd);
    runs_release(&live->runs);
    held_close(live->held);
    free(live->retries);
    store_batch_release(&live->row);
    free(live);
}

/* No line of it is given any more. */
static void leave_order(struct runner *runner, struct live *live) {
    runner->queue->ops->remove(runner->queue, live->row.sequence);
    order_remove(&runner->order, &live->order);
    if (runner->current == live) runner->current = NULL;
    live->lease = (struct queue_lease){0};
    live->lease_at = 0;
    held_clear(live->held);
}

void live_remove(struct runner *runner, struct live *live) {
    struct live **at = &runner->live;
    while (*at != live) at = &(*at)->next;
    *at = live->next;
    leave_order(runner, live);
    live->is_removed = true;
    if (live->readers == 0) live_free(live);
    pthread_cond_broadcast(&runner->idle);
}

void live_leave(struct live *live) {
    assert(live->readers > 0);
    if (--live->readers == 0 && live->is_removed) live_free(live);
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
static enum err rebuild_index(struct runner *runner, struct live *live, const char *path,
                              uint64_t input_bytes, struct error *error) {
    struct batch_validation result;
    struct batch_validate_options options = {.input_fd = live->input_fd,
                                             .input_bytes = input_bytes,
                                             .input_sha256 = live->input_sha256,
                                             .index_path = path,
                                             .endpoint = live->endpoint,
                                             .rules = batch_rules_default(),
                                             .serves = serves_all,
                                             .default_model = any_model};
    (void)runner;
    enum err err = batch_validate(&options, &result, error);
    if (err == OK && (result.errors || result.total != live->row.total))
        err = err_set(error, ERR_CORRUPT, "the input of batch %s is not what was validated",
                      live->row.id);
    batch_validation_release(&result);
    return err;
}

static enum err open_index(struct runner *runner, struct live *live, uint64_t input_bytes,
                           struct error *error) {
    char dir[4096], path[4200];
    enum err err = store_batch_dir(runner->store, live->row.id, dir, sizeof dir, error);
    if (err != OK) return err;
    snprintf(path, sizeof path, "%s/lines.idx", dir);
    err = index_open(&live->index, path, live->input_sha256, error);
    if (err == OK && index_count(live->index) == live->row.total) return OK;
    if (err != OK && err != ERR_CORRUPT && err != ERR_NOT_FOUND) return err;
    log_warn("batch=%s event=index_rebuilt", live->row.id);
    index_close(live->index);
    live->index = NULL;
    err = rebuild_index(runner, live, path, input_bytes, error);
    return err == OK ? index_open(&live->index, path, live->input_sha256, error) : err;
}

static enum err open_parts(struct runner *runner, struct live *live, struct error *error) {
    struct store_file file;
    enum err err = OK;
    if (live->input_fd < 0) {
        err = store_input_open(runner->store, str_from(live->row.input_file_id),
                               live->row.created_unix_s, &live->input_fd, &file, error);
        if (err != OK) return err;
        memcpy(live->input_sha256, file.sha256, SHA256_BYTES);
    }
    uint64_t input_bytes;
    err = os_file_bytes(live->input_fd, &input_bytes, error);
    if (err == OK && !live->index) err = open_index(runner, live, input_bytes, error);
    if (err != OK || live->log) return err;
    struct seglog_options options = {.batch_id = live->row.id,
                                     .batch_sequence = live->row.sequence,
                                     .line_count = live->row.total,
                                     .report = report_log};
    memcpy(options.input_sha256, live->input_sha256, SHA256_BYTES);
    return seglog_open(&live->log, runner->store, &options, error);
}

enum err live_load(struct runner *runner, struct live *live, struct error *error) {
    enum err err = open_parts(runner, live, error);
    if (err != OK) return err;
    struct store_batch row = live->row;
    row.epoch++;
    err = store_batch_update(runner->store, &row, row.status, NULL, 0, error);
    if (err != OK) return err;
    live->row.epoch = row.epoch;
    if (!live->runs.at) runs_make(&live->runs, live->index);
    runner->counters.recovered_lines += seglog_counts(live->log).recovered;
    return OK;
}

uint64_t live_lines_done(struct live *live) {
    struct seglog_counts counts = seglog_counts(live->log);
    return counts.successes + counts.errors + counts.others;
}

/* Batches of one model compete for the same engines (FNV-1a of its name). */
static uint64_t pool_of(const char *model) {
    uint64_t sum = 0xCBF29CE484222325u;
    for (; *model; model++) sum = (sum ^ (unsigned char)*model) * 0x100000001B3u;
    return sum;
}

/* Tokens of a line, guessed from the size of the file, until its lines have told. */
static double guess_line_cost(const struct line_index *index) {
    uint32_t count = index_count(index);
    if (count == 0) return 1;
    struct index_entry last = index_entry(index, count - 1);
    return (double)(last.offset + last.bytes) / count / TOKEN_BYTES;
}

/* From now on its lines may be given. */
static void join_order(struct runner *runner, struct live *live) {
    leave_order(runner, live);
    struct queue_work work = {
        .batch = live->row.sequence, .epoch = live->row.epoch, .count = index_count(live->index)};
    runner->queue->ops->add(runner->queue, &work);
    live->order = (struct order_entry){.owner = live,
                                       .age = live->row.sequence,
                                       .tier = tier_of_batch(live->row.service_tier),
                                       .priority = live->row.priority,
                                       .pool = pool_of(live->row.model),
                                       .deadline_unix_s = live->row.expires_unix_s,
                                       .lines_done = live_lines_done(live),
                                       .lines_total = live->row.total,
                                       .line_cost = guess_line_cost(live->index)};
    order_add(&runner->order, &live->order);
    runner->is_reordered = true;
}

void live_start_lines(struct runner *runner, struct live *live) {
    bool runs = live->row.status == BATCH_IN_PROGRESS ||
                (live->row.status == BATCH_FINALIZING && live->row.final_status == BATCH_COMPLETED);
    live->stop = false;
    live->deadline_ns = 0;
    live->phase = runs ? PHASE_RUN : PHASE_END;
    if (runs) join_order(runner, live);
}

/* --- moving --- */

enum err live_move(struct runner *runner, struct live *live, enum batch_status to,
                   struct error *error) {
    struct store_batch row = live->row;
    batch_move(&row, to, runner_now_unix_s(runner));
    enum err err = store_batch_update(runner->store, &row, live->row.status, NULL, 0, error);
    if (err != OK) return err;
    /* Only what a move changes: other threads read the rest without the lock. */
    live->row.status = row.status;
    live->row.in_progress_unix_s = row.in_progress_unix_s;
    live->row.finalizing_unix_s = row.finalizing_unix_s;
    live->row.failed_unix_s = row.failed_unix_s;
    live->row.cancelling_unix_s = row.cancelling_unix_s;
    return OK;
}

bool live_is_done(struct live *live) {
    return live_lines_done(live) >= live->row.total;
}

void retry_clear_suspect(struct runner *runner, struct retry *retry) {
    if (!retry->is_suspect) return;
    struct place *place = &runner->places[retry->home];
    assert(place->suspects > 0);
    if (--place->suspects == 0) {
        runner->progress++;
        pthread_cond_signal(&runner->work);
    }
    retry->is_suspect = false;
}

void live_push_retry(struct live *live, const struct retry *retry) {
    live->retries =
        vec_grow(live->retries, live->retry_count, &live->retry_capacity, sizeof *live->retries);
    live->retries[live->retry_count++] = *retry;
}

static void add_cancel(struct runner *runner, struct cancel_list *list, const struct slot *slot) {
    struct worker *worker = runner->places[slot->place].worker;
    list->items = mem_resize(list->items, list->count + 1, sizeof *list->items);
    list->items[list->count++] = (struct cancel_item){worker, slot->id};
}

void cancel_list_send(struct cancel_list *list) {
    for (size_t i = 0; i < list->count; i++)
        list->items[i].worker->ops->cancel(list->items[i].worker, list->items[i].job_id);
    free(list->items);
    *list = (struct cancel_list){0};
}

void live_stop_lines(struct runner *runner, struct live *live, struct cancel_list *ret_cancel) {
    leave_order(runner, live);
    for (size_t i = 0; i < live->retry_count; i++) retry_clear_suspect(runner, &live->retries[i]);
    live->retry_count = 0;
    reuse_forget(runner, live);
    live->phase = PHASE_END;
    live->deadline_ns = clock_monotonic_ns() + runner->options.cancel_deadline_ms * 1000000;
    if (live->in_flight == 0) return;
    for (uint32_t i = 0; i < runner->slot_count; i++) {
        struct slot *slot = slot_at(runner, i);
        if (slot->state == SLOT_RUNNING && slot->live == live) add_cancel(runner, ret_cancel, slot);
    }
}

void live_fault(struct runner *runner, struct live *live, const char *message,
                struct cancel_list *ret_cancel) {
    struct error error;
    if (live->row.status != BATCH_IN_PROGRESS) return;
    log_error("batch=%s event=fault error=\"%s\"", live->row.id, message);
    free(live->row.errors);
    live->row.errors = batch_single_error("internal_error", NULL, message);
    live->row.final_status = BATCH_FAILED;
    if (live_move(runner, live, BATCH_FINALIZING, &error) == OK)
        live_stop_lines(runner, live, ret_cancel);
}

void live_copy_row(struct live *live, struct store_batch *ret_batch) {
    struct store_batch row = live->row;
    row.metadata = mem_text(row.metadata);
    row.webhook_url = mem_text(row.webhook_url);
    row.errors = mem_text(row.errors);
    row.extras = mem_text(row.extras);
    row.quality = mem_text(row.quality);
    if (live->log) {
        struct seglog_counts counts = seglog_counts(live->log);
        free(row.quality);
        row.quality = live_quality(live);
        /* Lines that run again after damage were counted before. */
        row.completed = counts.successes < row.total ? counts.successes : row.total;
        uint64_t left = row.total - row.completed;
        row.failed = counts.errors < left ? counts.errors : left;
        row.usage = counts.usage;
    }
    memcpy(row.waiting_for, live->progress.waiting_for, sizeof row.waiting_for);
    if (live_is_paused(live))
        snprintf(row.waiting_for, sizeof row.waiting_for, "its owner: it is paused");
    *ret_batch = row;
}

/* --- tending --- */

/* Gives jobs up that did not end in time after their batch was cancelled or expired. */
static void drop_running(struct runner *runner, struct live *live) {
    for (uint32_t i = 0; i < runner->slot_count; i++) {
        struct slot *slot = slot_at(runner, i);
        if (slot->state != SLOT_RUNNING || slot->live != live) continue;
        slot_leave_worker(runner, slot);
        retry_clear_suspect(runner, &slot->line);
        slot_free(runner, slot);
    }
}

static void tend_running(struct runner *runner, struct live *live, struct cancel_list *cancel) {
    struct error error;
    if (live->in_flight == 0 && live_is_done(live)) {
        if (live->row.status == BATCH_IN_PROGRESS) {
            live->row.final_status = BATCH_COMPLETED;
            if (live_move(runner, live, BATCH_FINALIZING, &error) != OK) return;
        }
        live_stop_lines(runner, live, cancel);
        return;
    }
    if (live->row.status != BATCH_IN_PROGRESS ||
        runner_now_unix_s(runner) < live->row.expires_unix_s)
        return;
    live->row.final_status = BATCH_EXPIRED;
    if (live_move(runner, live, BATCH_FINALIZING, &error) != OK) return;
    log_info("batch=%s event=expiring", live->row.id);
    live_stop_lines(runner, live, cancel);
}

static void tend_one(struct runner *runner, struct live *live, int64_t now_ns,
                     struct cancel_list *cancel) {
    if (live->phase == PHASE_RUN) live_judge(runner, live);
    if (live->phase == PHASE_RUN) tend_running(runner, live, cancel);
    if (live->phase != PHASE_END) return;
    if (live->in_flight > 0 && now_ns >= live->deadline_ns) drop_running(runner, live);
    if (live->in_flight > 0) return;
    live->phase = PHASE_PUBLISH;
    live->due_ns = 0;
    pthread_cond_broadcast(&runner->helpers);
}

void batches_tend(struct runner *runner) {
    struct cancel_list cancel = {0};
    int64_t now_ns = clock_monotonic_ns();
    pthread_mutex_lock(&runner->lock);
    for (struct live *live = runner->live; live; live = live->next)
        tend_one(runner, live, now_ns, &cancel);
    pthread_mutex_unlock(&runner->lock);
    cancel_list_send(&cancel);
}
