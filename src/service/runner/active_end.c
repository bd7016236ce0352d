/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/active_end.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "batch/validate.h"
#include "runner/leaders.h"
#include "runner/pause.h"
#include "runner/runner_internal.h"

#include <stdlib.h>

void cancel_list_add(struct runner *runner, struct cancel_list *list, const struct slot *slot) {
    struct worker *worker = runner->seats[slot->seat].worker;
    list->items = vec_grow(list->items, list->count, &list->capacity, sizeof *list->items);
    list->items[list->count++] = (struct cancel_item){worker, slot->id, slot->may_stay};
}

void cancel_list_send(struct cancel_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        const struct cancel_item *item = &list->items[i];
        const struct worker_ops *ops = item->worker->ops;
        (item->may_stay ? ops->recall : ops->cancel)(item->worker, item->job_id);
    }
    free(list->items);
    *list = (struct cancel_list){0};
}

void active_stop_lines(struct runner *runner, struct active_batch *batch,
                       struct cancel_list *cancel) {
    active_leave_order(runner, batch);
    for (size_t i = 0; i < batch->pending_count; i++)
        seat_clear_suspect(runner, &batch->pending[i]);
    batch->pending_count = 0;
    leaders_forget(runner, batch);
    batch->phase = PHASE_END;
    batch->deadline_ns = clock_monotonic_ns() + runner->options.cancel_deadline_ms * 1000000;
    if (batch->in_flight == 0) return;
    for (uint32_t i = 0; i < runner->slot_count; i++) {
        struct slot *slot = slot_at(runner, i);
        if (slot->state != SLOT_RUNNING || slot->batch != batch) continue;
        slot->may_stay = false;
        cancel_list_add(runner, cancel, slot);
    }
}

void active_fault(struct runner *runner, struct active_batch *batch, const char *message,
                  struct cancel_list *cancel) {
    struct error error;
    if (batch->row.status != BATCH_IN_PROGRESS) return;
    log_error("batch=%s event=fault error=\"%s\"", batch->row.id, message);
    free(batch->row.errors);
    batch->row.errors = batch_single_error("internal_error", NULL, message);
    batch->row.final_status = BATCH_FAILED;
    if (active_move(runner, batch, BATCH_FINALIZING, &error) == OK)
        active_stop_lines(runner, batch, cancel);
}

/* --- tending --- */

static bool is_done(struct active_batch *batch) {
    return active_lines_done(batch) >= batch->row.total;
}

/* Gives jobs up that did not end in time after their batch was cancelled or expired. */
static void drop_running(struct runner *runner, struct active_batch *batch) {
    for (uint32_t i = 0; i < runner->slot_count; i++) {
        struct slot *slot = slot_at(runner, i);
        if (slot->state != SLOT_RUNNING || slot->batch != batch) continue;
        seat_leave(runner, slot);
        seat_clear_suspect(runner, &slot->line);
        slot_free(runner, slot);
    }
}

static void tend_running(struct runner *runner, struct active_batch *batch,
                         struct cancel_list *cancel) {
    struct error error;
    if (batch->in_flight == 0 && is_done(batch)) {
        if (batch->row.status == BATCH_IN_PROGRESS) {
            batch->row.final_status = BATCH_COMPLETED;
            if (active_move(runner, batch, BATCH_FINALIZING, &error) != OK) return;
        }
        active_stop_lines(runner, batch, cancel);
        return;
    }
    if (batch->row.status != BATCH_IN_PROGRESS ||
        runner_now_unix_s(runner) < batch->row.expires_unix_s)
        return;
    batch->row.final_status = BATCH_EXPIRED;
    if (active_move(runner, batch, BATCH_FINALIZING, &error) != OK) return;
    log_info("batch=%s event=expiring", batch->row.id);
    active_stop_lines(runner, batch, cancel);
}

static void tend_one(struct runner *runner, struct active_batch *batch, int64_t now_ns,
                     struct cancel_list *cancel) {
    if (batch->phase == PHASE_RUN) active_judge(runner, batch);
    if (batch->phase == PHASE_RUN) tend_running(runner, batch, cancel);
    if (batch->phase != PHASE_END) return;
    if (batch->in_flight > 0 && now_ns >= batch->deadline_ns) drop_running(runner, batch);
    if (batch->in_flight > 0) return;
    batch->phase = PHASE_PUBLISH;
    batch->due_ns = 0;
    pthread_cond_broadcast(&runner->helpers);
}

void batches_tend(struct runner *runner) {
    struct cancel_list cancel = {0};
    int64_t now_ns = clock_monotonic_ns();
    pthread_mutex_lock(&runner->lock);
    for (struct active_batch *batch = runner->batches; batch; batch = batch->next)
        tend_one(runner, batch, now_ns, &cancel);
    pthread_mutex_unlock(&runner->lock);
    cancel_list_send(&cancel);
}
