/* SPDX-License-Identifier: Apache-2.0 */

/* The publish thread: writes result files and ends batches, one after another, so that a big one
 * does not stall the lines of others. */

#include "batch/publish.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "runner/runner_internal.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_NS 200000000
#define AGAIN_NS 500000000
#define SWEEP_NS 60000000000

struct asker {
    struct runner *runner;
    struct active_batch *batch;
};

static bool is_stopped(void *context) {
    struct asker *asker = context;
    pthread_mutex_lock(&asker->runner->lock);
    bool stopped = asker->batch->stop || asker->runner->is_stopping;
    pthread_mutex_unlock(&asker->runner->lock);
    return stopped;
}

/* Ends a batch without result files: it has no lines, or nothing can be read. */
static enum err end_bare(struct runner *runner, struct store_batch *row, struct error *error) {
    struct store_batch ended = *row;
    batch_move(&ended, batch_publish_target(row), runner_now_unix_s(runner));
    enum err err = store_batch_update(runner->store, &ended, row->status, NULL, error);
    if (err == OK) *row = ended;
    return err;
}

static enum err publish_files(struct runner *runner, struct active_batch *batch,
                              struct store_batch *row, struct batch_published *published,
                              struct error *error) {
    struct asker asker = {runner, batch};
    if (!batch->index || !batch->log) return end_bare(runner, row, error);
    struct store_file input;
    int input_fd = -1;
    enum err err = store_input_open(runner->store, str_from(row->input_file_id),
                                    row->created_unix_s, &input_fd, &input, error);
    if (err == ERR_EXHAUSTED) return err;
    /* Without the input, a batch whose lines all have a result still ends. */
    if (err != OK) input_fd = -1;
    bool proves = err == OK && !runner->options.skips_proofs;
    struct batch_publish publish = {.store = runner->store,
                                    .batch = row,
                                    .log = batch->log,
                                    .index = batch->index,
                                    .input_fd = input_fd,
                                    .input = proves ? &input : NULL,
                                    .now_unix_s = runner_now_unix_s(runner),
                                    .context = &asker,
                                    .stopped = is_stopped};
    err = batch_publish(&publish, row, published, error);
    seglog_close_reads(batch->log);
    os_close(input_fd);
    return err;
}

/* The batch has ended. The lock is held. */
static void finish(struct runner *runner, struct active_batch *batch, const struct store_batch *row,
                   const struct batch_published *published) {
    struct error error;
    char id[STORE_ID_BYTES];
    memcpy(id, row->id, sizeof id);
    log_info("batch=%s event=%s output_lines=%llu error_lines=%llu", id,
             batch_status_name(row->status), (unsigned long long)published->output_lines,
             (unsigned long long)published->error_lines);
    active_remove(runner, batch);
    if (store_batch_forget_log(runner->store, id, &error) != OK)
        log_warn("batch=%s error=\"%s\"", id, error.text);
}

/* The lock is held, and let go while files are written. */
static void publish(struct runner *runner, struct active_batch *batch) {
    struct batch_published published = {0};
    struct error error = {0};
    if (!store_has_room(runner->store, 0)) { /* the store has logged it */
        batch->due_ns = clock_monotonic_ns() + AGAIN_NS;
        return;
    }
    batch->phase = PHASE_PUBLISHING;
    batch->stop = false;
    if (batch->log) {
        free(batch->row.quality);
        batch->row.quality = active_quality(batch);
    }
    /* The active batch still owns the texts of the row; a cancel changes none of them. */
    struct store_batch row = batch->row;
    pthread_mutex_unlock(&runner->lock);
    enum err err = publish_files(runner, batch, &row, &published, &error);
    pthread_mutex_lock(&runner->lock);
    if (err == OK) {
        finish(runner, batch, &row, &published);
        return;
    }
    batch->phase = PHASE_PUBLISH;
    batch->due_ns = 0;
    if (err == ERR_CONFLICT && published.missing > 0 && batch->row.status == BATCH_FINALIZING) {
        log_warn("batch=%s error=\"%s\", running them again", batch->row.id, error.text);
        active_start_lines(runner, batch);
        pthread_cond_signal(&runner->work);
    } else if (err != ERR_CONFLICT && err != ERR_CANCELLED) {
        log_warn("batch=%s error=\"%s\", retrying", batch->row.id, error.text);
        batch->due_ns = clock_monotonic_ns() + AGAIN_NS;
    }
}

static struct active_batch *next_due(struct runner *runner, int64_t now_ns) {
    for (struct active_batch *batch = runner->batches; batch; batch = batch->next)
        if (batch->phase == PHASE_PUBLISH && batch->due_ns <= now_ns) return batch;
    return NULL;
}

/* Removes what is expired, deleted or too old. True if there is more. The lock is held, and let
 * go. */
static bool sweep(struct runner *runner) {
    int64_t now_unix_s = runner_now_unix_s(runner);
    pthread_mutex_unlock(&runner->lock);
    bool has_more = retention_sweep(&runner->retention, now_unix_s);
    pthread_mutex_lock(&runner->lock);
    return has_more;
}

void *publish_main(void *context) {
    struct runner *runner = context;
    int64_t sweep_ns = 0; /* what a kill has cut off goes on at once */
    pthread_mutex_lock(&runner->lock);
    while (!runner->is_stopping) {
        int64_t now_ns = clock_monotonic_ns();
        struct active_batch *batch = next_due(runner, now_ns);
        if (batch) {
            publish(runner, batch);
        } else if (runner->is_sweep_due || now_ns >= sweep_ns) {
            sweep_ns = now_ns + SWEEP_NS;
            runner->is_sweep_due = false;
            if (sweep(runner)) runner->is_sweep_due = true;
        } else {
            runner_wait(runner, &runner->helpers, now_ns + WAIT_NS);
        }
    }
    pthread_mutex_unlock(&runner->lock);
    return NULL;
}
