/* SPDX-License-Identifier: Apache-2.0 */

/* The publish thread: writes result files and ends batches, one after another, so that a big one
 * does not stall the lines of others. */

#include "base/clock.h"
#include "base/log.h"
#include "runner/runner_internal.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_NS 200000000
#define AGAIN_NS 500000000
#define SWEEP_NS 60000000000

struct asker {
    struct runner *runner;
    struct live *live;
};

static bool is_stopped(void *context) {
    struct asker *asker = context;
    pthread_mutex_lock(&asker->runner->lock);
    bool stopped = asker->live->stop || asker->runner->is_stopping;
    pthread_mutex_unlock(&asker->runner->lock);
    return stopped;
}

/* A batch without lines or without anything to read: it just ends. */
static enum err end_bare(struct runner *runner, struct store_batch *row, struct error *error) {
    struct store_batch ended = *row;
    batch_move(&ended, batch_publish_target(row), runner_now_unix_s(runner));
    enum err err = store_batch_update(runner->store, &ended, row->status, NULL, 0, error);
    if (err == OK) *row = ended;
    return err;
}

static enum err publish_files(struct runner *runner, struct live *live, struct store_batch *row,
                              struct batch_published *published, struct error *error) {
    struct asker asker = {runner, live};
    if (!live->index || !live->log) return end_bare(runner, row, error);
    struct batch_publish publish = {.store = runner->store,
                                    .batch = row,
                                    .log = live->log,
                                    .index = live->index,
                                    .input_fd = live->input_fd,
                                    .now_unix_s = runner_now_unix_s(runner),
                                    .context = &asker,
                                    .stopped = is_stopped};
    return batch_publish(&publish, row, published, error);
}

/* The batch has ended. The lock is held. */
static void finish(struct runner *runner, struct live *live, const struct store_batch *row,
                   const struct batch_published *published) {
    struct error error;
    char id[STORE_ID_BYTES];
    memcpy(id, row->id, sizeof id);
    log_info("batch=%s event=%s output_lines=%llu error_lines=%llu", id,
             batch_status_name(row->status), (unsigned long long)published->output_lines,
             (unsigned long long)published->error_lines);
    live_remove(runner, live);
    if (store_batch_forget_log(runner->store, id, &error) != OK)
        log_warn("batch=%s error=\"%s\"", id, error.text);
}

/* The lock is held, and let go while files are written. */
static void publish(struct runner *runner, struct live *live) {
    struct batch_published published = {0};
    struct error error = {0};
    if (!store_has_room(runner->store, 0)) { /* the store has said so */
        live->due_ns = clock_monotonic_ns() + AGAIN_NS;
        return;
    }
    live->phase = PHASE_PUBLISHING;
    live->stop = false;
    if (live->log) {
        free(live->row.quality);
        live->row.quality = live_quality(live);
    }
    /* The texts of the row stay the live one's; cancel changes none of them. */
    struct store_batch row = live->row;
    pthread_mutex_unlock(&runner->lock);
    enum err err = publish_files(runner, live, &row, &published, &error);
    pthread_mutex_lock(&runner->lock);
    if (err == OK) {
        finish(runner, live, &row, &published);
        return;
    }
    live->phase = PHASE_PUBLISH;
    live->due_ns = 0;
    if (err == ERR_CONFLICT && published.missing > 0 && live->row.status == BATCH_FINALIZING) {
        log_warn("batch=%s error=\"%s\", running them again", live->row.id, error.text);
        live_start_lines(runner, live);
        pthread_cond_signal(&runner->work);
    } else if (err != ERR_CONFLICT && err != ERR_CANCELLED) {
        log_warn("batch=%s error=\"%s\", retrying", live->row.id, error.text);
        live->due_ns = clock_monotonic_ns() + AGAIN_NS;
    }
}

static struct live *next_due(struct runner *runner, int64_t now_ns) {
    for (struct live *live = runner->live; live; live = live->next)
        if (live->phase == PHASE_PUBLISH && live->due_ns <= now_ns) return live;
    return NULL;
}

/* Files that nobody needs any more go about once a minute. The lock is held, and let go. */
static void sweep(struct runner *runner) {
    struct error error;
    int64_t now_unix_s = runner_now_unix_s(runner);
    pthread_mutex_unlock(&runner->lock);
    if (store_file_sweep(runner->store, now_unix_s, &error) != OK)
        log_warn("event=sweep error=\"%s\", retrying", error.text);
    pthread_mutex_lock(&runner->lock);
}

void *publish_main(void *context) {
    struct runner *runner = context;
    int64_t sweep_ns = clock_monotonic_ns() + SWEEP_NS;
    pthread_mutex_lock(&runner->lock);
    while (!runner->is_stopping) {
        int64_t now_ns = clock_monotonic_ns();
        struct live *live = next_due(runner, now_ns);
        if (live)
            publish(runner, live);
        else if (now_ns >= sweep_ns)
            sweep(runner);
        else
            runner_wait(runner, &runner->helpers, now_ns + WAIT_NS);
        if (now_ns >= sweep_ns) sweep_ns = now_ns + SWEEP_NS;
    }
    pthread_mutex_unlock(&runner->lock);
    return NULL;
}
