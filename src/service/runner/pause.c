/* SPDX-License-Identifier: Apache-2.0 */

/* Batches that wait for their owner, by request or because their answers look wrong. */

#include "runner/pause.h"

#include "base/log.h"
#include "batch/quality.h"
#include "runner/events.h"
#include "runner/runner_internal.h"

_Static_assert(sizeof((struct runner *)NULL)->counters.quality_alarms / sizeof(uint64_t) ==
                   QUALITY_SHARES,
               "one counter a share");

static enum err set_paused(struct runner *runner, struct active_batch *batch,
                           enum batch_paused paused, struct error *error) {
    struct store_batch row = batch->row;
    row.paused = paused;
    enum err err = store_batch_update(runner->store, &row, row.status, NULL, error);
    if (err != OK) return err;
    batch->row.paused = paused;
    runner->progress++;
    runner->is_reordered = true;
    pthread_cond_signal(&runner->work);
    return OK;
}

enum err active_pause(struct runner *runner, struct active_batch *batch, enum batch_paused why,
                      struct error *error) {
    if (active_is_paused(batch)) return OK;
    log_info("batch=%s event=paused by=%s", batch->row.id,
             why == BATCH_PAUSED_BY_QUALITY ? "quality" : "request");
    return set_paused(runner, batch, why, error);
}

enum err active_resume(struct runner *runner, struct active_batch *batch, struct error *error) {
    if (!active_is_paused(batch)) return OK;
    log_info("batch=%s event=resumed", batch->row.id);
    /* A client that resumes the batch has seen its answers. */
    return set_paused(
        runner, batch,
        batch->row.paused == BATCH_PAUSED_BY_QUALITY ? BATCH_FORGIVEN : BATCH_NOT_PAUSED, error);
}

void active_judge(struct runner *runner, struct active_batch *batch) {
    struct seglog_counts counts = seglog_counts(batch->log);
    enum quality_share share;
    struct error error;
    if (!quality_is_alarming(&counts, &batch->extras, &share)) return;
    if (!(batch->alarms & 1u << share)) {
        batch->alarms |= 1u << share;
        runner->counters.quality_alarms[share]++;
        log_warn("batch=%s event=quality_alarm share=%s answers=%llu", batch->row.id,
                 quality_share_names[share], (unsigned long long)counts.successes);
        events_note(runner, HISTORY_QUALITY_ALARM, batch->row.id, batch->row.owner,
                    "Of %llu answers, too many have the sign '%s'.",
                    (unsigned long long)counts.successes, quality_share_names[share]);
    }
    bool pauses = batch->extras.pauses && batch->row.paused == BATCH_NOT_PAUSED &&
                  batch->row.status == BATCH_IN_PROGRESS;
    if (pauses && active_pause(runner, batch, BATCH_PAUSED_BY_QUALITY, &error) != OK)
        log_warn("batch=%s error=\"%s\", retrying", batch->row.id, error.text);
}
