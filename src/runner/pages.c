/* SPDX-License-Identifier: Apache-2.0 */

/* Results for a reader who does not wait for the end of the batch: from the log while it exists,
 * then from the published files. Both count in the same way, so that a reader sees no change. */

#include "batch/arrival.h"
#include "runner/runner_internal.h"
#include "store/seglog_reader.h"

#include <string.h>

static enum err read_log(struct seglog *log, const struct runner_page *page, struct buf *buf,
                         uint64_t *ret_last, struct error *error) {
    struct seglog_reader reader;
    struct seglog_found found;
    size_t from = buf->bytes;
    bool more = true;
    *ret_last = page->after;
    enum err err = seglog_reader_open(&reader, log, page->after, error);
    if (err != OK) return err;
    for (uint64_t lines = 0; lines < page->lines_max && buf->bytes - from < page->bytes_max;) {
        err = seglog_reader_next(&reader, buf, &found, &more, error);
        if (err != OK || !more) break;
        *ret_last = found.sequence;
        lines++;
    }
    seglog_reader_close(&reader);
    return err;
}

/* Reads from an active batch. False if no active batch has this id, or it ended meanwhile. */
static bool read_active(struct runner *runner, struct str batch_id, const struct runner_page *page,
                        struct buf *buf, uint64_t *ret_last, enum err *ret_err,
                        struct error *error) {
    size_t from = buf->bytes;
    pthread_mutex_lock(&runner->lock);
    struct active_batch *batch = active_find(runner, batch_id);
    struct seglog *log = batch ? batch->log : NULL;
    if (batch) batch->readers++;
    pthread_mutex_unlock(&runner->lock);
    if (!batch) return false;
    *ret_last = page->after;
    *ret_err = log ? read_log(log, page, buf, ret_last, error) : OK;
    pthread_mutex_lock(&runner->lock);
    active_leave(batch);
    pthread_mutex_unlock(&runner->lock);
    if (*ret_err == OK) return true;
    buf_truncate(buf, from);
    return *ret_err != ERR_NOT_FOUND; /* its log was removed: it has ended */
}

enum err runner_batch_results(struct runner *runner, struct str batch_id,
                              const struct runner_page *page, struct buf *buf, uint64_t *ret_last,
                              bool *ret_more, struct error *error) {
    enum err err = OK;
    *ret_more = true;
    if (read_active(runner, batch_id, page, buf, ret_last, &err, error)) return err;
    struct store_batch batch;
    err = store_batch_get(runner->store, batch_id, &batch, error);
    if (err != OK) return err;
    *ret_last = page->after;
    if (batch_status_is_terminal(batch.status)) {
        struct arrival_page published = {.after = page->after,
                                         .lines_max = page->lines_max,
                                         .bytes_max = page->bytes_max,
                                         .now_unix_s = runner_now_unix_s(runner)};
        err = arrival_read(runner->store, &batch, &published, buf, ret_last, ret_more, error);
    }
    store_batch_release(&batch);
    return err;
}
