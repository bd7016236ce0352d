/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/state.h"

#include <assert.h>

/* validating ──(1)──▶ in_progress ──(3)──▶ finalizing ──(4)──▶ completed
 *     │   │                  │                  │   └───(5)──▶ expired, failed
 *     │   └──(2)──▶ failed   │                  │
 *     └──────────(6)─────────┴────────(6)───────┴──▶ cancelling ──(7)──▶ cancelled
 *
 * (1) runner/validate.c: every line is sound and the line index is on the disk.
 * (2) runner/validate.c: the file is missing or not sound; `errors` says why.
 * (3) runner/active_end.c: every line has a durable result, or the window has closed, or the
 *     input can no longer be read; final_status tells these apart.
 * (4) (5) runner/publish.c: the result files are on the disk, in the same transaction.
 * (6) runner_batch_cancel: a client asked.
 * (7) runner/publish.c: as (4); without files if the batch was never validated.
 *
 * Members that can be trusted: `total` and `model` from in_progress on; all members in a
 * terminal state, which never changes. In between, the counters are in the segment log and
 * not in the row. */

const char *batch_status_name(enum batch_status status) {
    switch (status) {
    case BATCH_VALIDATING: return "validating";
    case BATCH_IN_PROGRESS: return "in_progress";
    case BATCH_FINALIZING: return "finalizing";
    case BATCH_CANCELLING: return "cancelling";
    case BATCH_COMPLETED: return "completed";
    case BATCH_FAILED: return "failed";
    case BATCH_EXPIRED: return "expired";
    case BATCH_CANCELLED: return "cancelled";
    case BATCH_STATUS_COUNT: break;
    }
    assert(status < BATCH_STATUS_COUNT);
    return "";
}

bool batch_status_is_terminal(enum batch_status status) {
    return status >= BATCH_COMPLETED;
}

bool batch_move_is_legal(enum batch_status from, enum batch_status to) {
    switch (from) {
    case BATCH_VALIDATING:
        return to == BATCH_IN_PROGRESS || to == BATCH_FAILED || to == BATCH_CANCELLING;
    case BATCH_IN_PROGRESS: return to == BATCH_FINALIZING || to == BATCH_CANCELLING;
    case BATCH_FINALIZING:
        return to == BATCH_COMPLETED || to == BATCH_EXPIRED || to == BATCH_FAILED ||
               to == BATCH_CANCELLING;
    case BATCH_CANCELLING: return to == BATCH_CANCELLED;
    case BATCH_COMPLETED:
    case BATCH_FAILED:
    case BATCH_EXPIRED:
    case BATCH_CANCELLED:
    case BATCH_STATUS_COUNT: return false;
    }
    return false;
}

static int64_t *stamp_of(struct store_batch *batch, enum batch_status status) {
    switch (status) {
    case BATCH_IN_PROGRESS: return &batch->in_progress_unix_s;
    case BATCH_FINALIZING: return &batch->finalizing_unix_s;
    case BATCH_CANCELLING: return &batch->cancelling_unix_s;
    case BATCH_COMPLETED: return &batch->completed_unix_s;
    case BATCH_FAILED: return &batch->failed_unix_s;
    case BATCH_EXPIRED: return &batch->expired_unix_s;
    case BATCH_CANCELLED: return &batch->cancelled_unix_s;
    case BATCH_VALIDATING:
    case BATCH_STATUS_COUNT: break;
    }
    return NULL;
}

void batch_move(struct store_batch *batch, enum batch_status to, int64_t now_unix_s) {
    assert(batch_move_is_legal(batch->status, to));
    int64_t *stamp = stamp_of(batch, to);
    assert(stamp);
    /* The machine's clock may have been set back since an earlier state; times never go back. */
    const int64_t before[] = {batch->created_unix_s, batch->in_progress_unix_s,
                              batch->finalizing_unix_s, batch->cancelling_unix_s};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        if (before[i] > now_unix_s) now_unix_s = before[i];
    if (*stamp == 0) *stamp = now_unix_s;
    batch->status = to;
}

enum batch_cancel batch_cancel_in(enum batch_status status) {
    switch (status) {
    case BATCH_VALIDATING:
    case BATCH_IN_PROGRESS:
    case BATCH_FINALIZING: return BATCH_CANCEL_NOW;
    case BATCH_CANCELLING:
    case BATCH_CANCELLED: return BATCH_CANCEL_ALREADY;
    case BATCH_COMPLETED:
    case BATCH_FAILED:
    case BATCH_EXPIRED:
    case BATCH_STATUS_COUNT: break;
    }
    return BATCH_CANCEL_REFUSED;
}
