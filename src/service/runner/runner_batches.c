/* SPDX-License-Identifier: Apache-2.0 */

/* What clients do to batches: look, cancel, pause, delete. */

#include "runner/runner.h"

#include "base/clock.h"
#include "base/log.h"
#include "batch/state.h"
#include "runner/active_end.h"
#include "runner/pause.h"
#include "runner/runner_internal.h"

#include <string.h>

#define LOOK_AGAIN_NS INT64_C(1000000000)
#define PUBLISHER_NS INT64_C(5000000000) /* a wait for the publisher of an ended batch */

/* A batch that a client has been told of cannot be read now, for want of memory or by an error of
 * the disk: the validate thread looks for it again. The lock is held. */
static void miss(struct runner *runner, const struct error *error) {
    log_warn("event=batch_missed error=\"%s\", looking again", error->text);
    runner->missed_due_ns = clock_monotonic_ns() + LOOK_AGAIN_NS;
}

void runner_kick(struct runner *runner, const char *batch_id) {
    struct store_batch row;
    struct error error;
    pthread_mutex_lock(&runner->lock);
    /* The start takes up every batch of the store, so until then no other call does. */
    bool known = !runner->is_started || active_find(runner, str_from(batch_id));
    enum err err =
        known ? ERR_NOT_FOUND : store_batch_get(runner->store, str_from(batch_id), &row, &error);
    if (err == OK && batch_status_is_terminal(row.status))
        store_batch_release(&row);
    else if (err == OK)
        active_adopt(runner, &row);
    if (err != OK && err != ERR_NOT_FOUND) miss(runner, &error);
    pthread_mutex_unlock(&runner->lock);
}

void runner_kick_missed(struct runner *runner) {
    uint64_t after = 0;
    struct store_batch row;
    struct error error;
    enum err err;
    while ((err = store_batch_next_live(runner->store, after, &row, &error)) == OK) {
        after = row.sequence;
        runner_kick(runner, row.id);
        store_batch_release(&row);
    }
    if (err == ERR_NOT_FOUND) return;
    pthread_mutex_lock(&runner->lock);
    miss(runner, &error);
    pthread_mutex_unlock(&runner->lock);
}

/* Copies the row of a batch that is active; false for any other. While its end is being written,
 * the store knows the end first, and so does the receiver of its webhook, who must not hear of the
 * end and then read "finalizing". */
static bool copy_active(struct runner *runner, struct str batch_id, struct store_batch *ret_batch) {
    pthread_mutex_lock(&runner->lock);
    struct active_batch *batch = active_find(runner, batch_id);
    bool is_publishing = batch && batch->phase == PHASE_PUBLISHING;
    if (batch) active_copy_row(batch, ret_batch);
    pthread_mutex_unlock(&runner->lock);
    if (!is_publishing) return batch != NULL;
    struct store_batch stored;
    struct error ignored;
    if (store_batch_get(runner->store, batch_id, &stored, &ignored) != OK) return true;
    bool has_ended = batch_status_is_terminal(stored.status);
    store_batch_release(has_ended ? ret_batch : &stored);
    if (has_ended) *ret_batch = stored;
    return true;
}

void runner_batch_overlay(struct runner *runner, struct store_batch *row) {
    struct store_batch active;
    retention_note(&runner->retention, row);
    if (batch_status_is_terminal(row->status)) return;
    if (copy_active(runner, str_from(row->id), &active)) {
        store_batch_release(row);
        *row = active;
        return;
    }
    /* It ended after the row was read, or was never taken up. */
    struct store_batch ended;
    struct error error;
    if (store_batch_get(runner->store, str_from(row->id), &ended, &error) != OK) return;
    store_batch_release(row);
    *row = ended;
    retention_note(&runner->retention, row);
}

enum err runner_batch_get(struct runner *runner, struct str batch_id, struct store_batch *ret_batch,
                          struct error *error) {
    enum err err = OK;
    if (!copy_active(runner, batch_id, ret_batch))
        err = store_batch_get(runner->store, batch_id, ret_batch, error);
    if (err == OK) retention_note(&runner->retention, ret_batch);
    return err;
}

/* The lock is held. */
static enum err cancel_active(struct runner *runner, struct active_batch *batch,
                              struct cancel_list *cancel, struct error *error) {
    switch (batch_cancel_in(batch->row.status)) {
    case BATCH_CANCEL_ALREADY: return OK;
    case BATCH_CANCEL_REFUSED: return ERR_CONFLICT;
    case BATCH_CANCEL_NOW: break;
    }
    bool has_lines = batch->row.status != BATCH_VALIDATING;
    enum err err = active_move(runner, batch, BATCH_CANCELLING, error);
    if (err != OK) return err;
    log_info("batch=%s event=cancelling", batch->row.id);
    batch->stop = true;
    /* With lines, it could not be opened yet: each line still gets its record once it can be. */
    if (batch->phase == PHASE_VALIDATE && !has_lines) batch->phase = PHASE_PUBLISH;
    if (batch->phase == PHASE_RUN) active_stop_lines(runner, batch, cancel);
    pthread_cond_broadcast(&runner->helpers);
    pthread_cond_signal(&runner->work);
    return OK;
}

/* Answers for a batch that is not active: it has ended, or does not exist. */
static enum err cancel_ended(struct runner *runner, struct str batch_id,
                             struct store_batch *ret_batch, struct error *error) {
    struct store_batch row;
    enum err err = store_batch_get(runner->store, batch_id, &row, error);
    if (err != OK) return err;
    if (row.status == BATCH_CANCELLED) {
        *ret_batch = row;
        return OK;
    }
    err = err_set(error, ERR_CONFLICT, "Cannot cancel a batch with status '%s'.",
                  batch_status_name(row.status));
    store_batch_release(&row);
    return err;
}

enum err runner_batch_cancel(struct runner *runner, struct str batch_id,
                             struct store_batch *ret_batch, struct error *error) {
    struct cancel_list cancel = {0};
    char id[STORE_ID_BYTES] = "";
    enum err err = ERR_CONFLICT;
    if (batch_id.bytes < sizeof id) memcpy(id, batch_id.at, batch_id.bytes);
    /* It may be in the store and not yet be known here. */
    if (*id) runner_kick(runner, id);
    pthread_mutex_lock(&runner->lock);
    struct active_batch *batch = active_find(runner, batch_id);
    if (batch) err = cancel_active(runner, batch, &cancel, error);
    pthread_mutex_unlock(&runner->lock);
    cancel_list_send(&cancel);
    if (err == OK) return runner_batch_get(runner, batch_id, ret_batch, error);
    /* A conflict means that the batch has ended; its row tells how. */
    return err == ERR_CONFLICT ? cancel_ended(runner, batch_id, ret_batch, error) : err;
}

enum err runner_batch_pause(struct runner *runner, struct str batch_id, bool pause,
                            struct store_batch *ret_batch, struct error *error) {
    struct store_batch row;
    enum err err = OK;
    pthread_mutex_lock(&runner->lock);
    struct active_batch *batch = active_find(runner, batch_id);
    if (batch && batch->row.status == BATCH_IN_PROGRESS) {
        err = pause ? active_pause(runner, batch, BATCH_PAUSED_BY_REQUEST, error)
                    : active_resume(runner, batch, error);
        if (err == OK) active_copy_row(batch, ret_batch);
        pthread_mutex_unlock(&runner->lock);
        return err;
    }
    pthread_mutex_unlock(&runner->lock);
    err = runner_batch_get(runner, batch_id, &row, error);
    if (err != OK) return err;
    err = err_set(error, ERR_CONFLICT, "Cannot %s a batch with status '%s'.",
                  pause ? "pause" : "resume", batch_status_name(row.status));
    store_batch_release(&row);
    return err;
}

/* Waits until the publisher of a batch that has ended lets go of it. True if it did. */
static bool wait_for_publisher(struct runner *runner, struct str batch_id) {
    int64_t until_ns = clock_monotonic_ns() + PUBLISHER_NS;
    bool is_active;
    pthread_mutex_lock(&runner->lock);
    while ((is_active = active_find(runner, batch_id) != NULL) && clock_monotonic_ns() < until_ns)
        runner_wait(runner, &runner->idle, until_ns);
    pthread_mutex_unlock(&runner->lock);
    return !is_active;
}

static enum err check_over(struct runner *runner, const char *verb, struct str batch_id,
                           struct error *error) {
    struct store_batch batch;
    enum err err = runner_batch_get(runner, batch_id, &batch, error);
    if (err != OK) return err;
    const char *status = batch_status_name(batch.status);
    if (!batch_status_is_terminal(batch.status))
        err = err_set(error, ERR_CONFLICT, "Cannot %s a batch with status '%s'.", verb, status);
    else if (!wait_for_publisher(runner, batch_id))
        err = err_set(error, ERR_UNAVAILABLE, "The end of the batch is still being written.");
    store_batch_release(&batch);
    return err;
}

enum err runner_batch_delete(struct runner *runner, struct str batch_id,
                             struct store_freed *ret_freed, struct error *error) {
    bool has_more = false;
    enum err err = check_over(runner, "delete", batch_id, error);
    if (err == OK)
        err = retention_delete(&runner->retention, batch_id, runner_now_unix_s(runner), ret_freed,
                               &has_more, error);
    if (err != OK || !has_more) return err;
    pthread_mutex_lock(&runner->lock);
    runner->is_sweep_due = true;
    pthread_cond_broadcast(&runner->helpers);
    pthread_mutex_unlock(&runner->lock);
    return OK;
}

/* --- erasing --- */

/* The lines are gone for every reader. What one call cannot remove goes with a later sweep or a
 * start. */
static void sweep_erased(struct runner *runner, const struct batch_erasure *erasure) {
    struct error later;
    for (size_t i = 0; i < erasure->batch_count; i++)
        log_info("batch=%s event=erased requests=%llu lines=%llu judgements=%llu",
                 erasure->batches[i].id, (unsigned long long)erasure->requests,
                 (unsigned long long)erasure->batches[i].lines,
                 (unsigned long long)erasure->batches[i].judgements);
    if (batch_erase_sweep(runner->store, erasure, runner_now_unix_s(runner), &later) != OK)
        log_warn("event=erased_sweep error=\"%s\", retrying", later.text);
}

enum err runner_batch_erase(struct runner *runner, const struct batch_erase *erase,
                            struct batch_erasure *ret_erasure, bool *ret_is_custom_id,
                            struct error *error) {
    struct batch_erase wish = *erase;
    enum err err = OK;
    *ret_is_custom_id = false;
    for (size_t i = 0; i < erase->batch_count && err == OK; i++)
        err = check_over(runner, "erase lines of", str_from(erase->batch_ids[i]), error);
    if (err != OK) return err;
    if (atomic_exchange(&runner->is_erasing, true))
        return err_set(error, ERR_UNAVAILABLE, "Another erasure is under way; try again soon.");
    wish.store = runner->store;
    wish.now_unix_s = runner_now_unix_s(runner);
    err = batch_erase(&wish, ret_erasure, ret_is_custom_id, error);
    if (err == OK) sweep_erased(runner, ret_erasure);
    atomic_store(&runner->is_erasing, false);
    return err;
}
