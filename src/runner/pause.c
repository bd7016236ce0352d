/* SPDX-License-Identifier: Apache-2.0 */

/* Batches that wait for their owner, by request or because their answers look wrong. */

#include "base/log.h"
#include "base/mem.h"
#include "runner/runner_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof((struct runner_status *)NULL)->quality_alarms / sizeof(uint64_t) ==
                   QUALITY_SHARES,
               "one counter a share");

bool live_is_paused(const struct live *live) {
    bool paused =
        live->row.paused == BATCH_PAUSED_BY_REQUEST || live->row.paused == BATCH_PAUSED_BY_QUALITY;
    return paused && live->row.status == BATCH_IN_PROGRESS;
}

static enum err set_paused(struct runner *runner, struct live *live, enum batch_paused paused,
                           struct error *error) {
    struct store_batch row = live->row;
    row.paused = paused;
    enum err err = store_batch_update(runner->store, &row, row.status, NULL, 0, error);
    if (err != OK) return err;
    live->row.paused = paused;
    runner->progress++;
    runner->is_reordered = true;
    pthread_cond_signal(&runner->work);
    return OK;
}

enum err live_pause(struct runner *runner, struct live *live, enum batch_paused why,
                    struct error *error) {
    if (live_is_paused(live)) return OK;
    log_info("batch=%s event=paused by=%s", live->row.id,
             why == BATCH_PAUSED_BY_QUALITY ? "quality" : "request");
    return set_paused(runner, live, why, error);
}

enum err live_resume(struct runner *runner, struct live *live, struct error *error) {
    if (!live_is_paused(live)) return OK;
    log_info("batch=%s event=resumed", live->row.id);
    /* Who lets it go on has seen what its answers are like. */
    return set_paused(
        runner, live,
        live->row.paused == BATCH_PAUSED_BY_QUALITY ? BATCH_FORGIVEN : BATCH_NOT_PAUSED, error);
}

void live_judge(struct runner *runner, struct live *live) {
    struct seglog_counts counts = seglog_counts(live->log);
    enum quality_share share;
    struct error error;
    if (!quality_is_alarming(&counts, &live->extras, &share)) return;
    if (!(live->alarms & 1u << share)) {
        live->alarms |= 1u << share;
        runner->counters.quality_alarms[share]++;
        log_warn("batch=%s event=quality_alarm share=%s answers=%llu", live->row.id,
                 quality_share_names[share], (unsigned long long)counts.successes);
    }
    bool pauses = live->extras.pauses && live->row.paused == BATCH_NOT_PAUSED &&
                  live->row.status == BATCH_IN_PROGRESS;
    if (pauses && live_pause(runner, live, BATCH_PAUSED_BY_QUALITY, &error) != OK)
        log_warn("batch=%s error=\"%s\", retrying", live->row.id, error.text);
}

char *live_quality(struct live *live) {
    struct buf text;
    struct seglog_counts counts = seglog_counts(live->log);
    buf_init(&text, 4096);
    quality_write(&text, &counts, &live->extras);
    char *copy = mem_text(text.at);
    buf_release(&text);
    return copy;
}

enum err runner_batch_pause(struct runner *runner, struct str batch_id, bool pause,
                            struct store_batch *ret_batch, struct error *error) {
    struct store_batch row;
    enum err err = OK;
    pthread_mutex_lock(&runner->lock);
    struct live *live = live_find(runner, batch_id);
    if (live && live->row.status == BATCH_IN_PROGRESS) {
        err = pause ? live_pause(runner, live, BATCH_PAUSED_BY_REQUEST, error)
                    : live_resume(runner, live, error);
        if (err == OK) live_copy_row(live, ret_batch);
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
