/* SPDX-License-Identifier: Apache-2.0 */

/* Results for a reader who does not wait for the end of the batch: from the log while it exists,
 * then from the published files. Both count in the same way, so that a reader sees no change. */

#include "base/mem.h"
#include "batch/completion_order.h"
#include "runner/runner_internal.h"
#include "store/seglog_reader.h"

#include <stdlib.h>
#include <string.h>

struct runner_results {
    struct runner *runner;
    char batch_id[STORE_ID_BYTES];
    bool is_published; /* `published` is open: the batch has ended */
    struct order_reader published;
};

static enum err read_log(struct seglog *log, const struct page *page, struct buf *buf,
                         struct page_read *read, struct error *error) {
    struct seglog_reader reader;
    bool more = true;
    enum err err = seglog_reader_open(&reader, log, page->from.after, error);
    if (err != OK) return err;
    while (err == OK && page_wants(page, read)) {
        size_t before = buf->bytes;
        struct seglog_part part = {.skip = page_skip(page, read),
                                   .room = read->is_full ? 0 : read->room};
        err = seglog_reader_next(&reader, &part, buf, &more, error);
        if (err != OK || !more) break;
        err = page_note(page, read, part.sequence, part.text_bytes, buf->bytes - before, error);
    }
    seglog_reader_close(&reader);
    return err;
}

/* Reads from an active batch. False if no active batch has this id, or it ended meanwhile. */
static bool read_active(struct runner_results *results, const struct page *page, struct buf *buf,
                        struct page_read *ret_read, enum err *ret_err, struct error *error) {
    struct runner *runner = results->runner;
    size_t from = buf->bytes;
    pthread_mutex_lock(&runner->lock);
    struct active_batch *batch = active_find(runner, str_from(results->batch_id));
    struct seglog *log = batch ? batch->log : NULL;
    if (batch) batch->readers++;
    pthread_mutex_unlock(&runner->lock);
    if (!batch) return false;
    *ret_read = page_begin(page);
    *ret_err = log ? read_log(log, page, buf, ret_read, error) : OK;
    pthread_mutex_lock(&runner->lock);
    active_leave(batch);
    pthread_mutex_unlock(&runner->lock);
    if (*ret_err == OK) return true;
    buf_truncate(buf, from);
    return *ret_err != ERR_NOT_FOUND; /* its log was removed: it has ended */
}

/* Opens the published files of a batch that has ended. */
static enum err open_published(struct runner_results *results, struct error *error) {
    struct store_batch batch;
    enum err err =
        store_batch_get(results->runner->store, str_from(results->batch_id), &batch, error);
    if (err != OK) return err;
    if (batch_status_is_terminal(batch.status)) {
        err = completion_order_open(&results->published, results->runner->store, &batch, error);
        results->is_published = err == OK;
    }
    store_batch_release(&batch);
    return err;
}

enum err runner_results_read(struct runner_results *results, const struct page *page,
                             struct buf *buf, struct page_read *ret_read, struct error *error) {
    enum err err = OK;
    size_t before = buf->bytes;
    if (!results->is_published) {
        /* Nothing behind the log's end: the batch may have ended all the same, because the publish
         * thread tells the store first, and then the runner. */
        if (read_active(results, page, buf, ret_read, &err, error) &&
            (err != OK || ret_read->lines > 0 || buf->bytes > before))
            return err;
        err = open_published(results, error);
        if (err != OK) return err;
    }
    *ret_read = page_begin(page);
    if (!results->is_published) return OK;
    return completion_order_read(&results->published, page, runner_now_unix_s(results->runner), buf,
                                 ret_read, error);
}

void runner_results_open(struct runner_results **ret_results, struct runner *runner,
                         struct str batch_id) {
    struct runner_results *results = mem_new(1, sizeof *results);
    results->runner = runner;
    if (batch_id.bytes < sizeof results->batch_id)
        memcpy(results->batch_id, batch_id.at, batch_id.bytes);
    *ret_results = results;
}

void runner_results_close(struct runner_results *results) {
    if (!results) return;
    if (results->is_published) completion_order_close(&results->published);
    free(results);
}
