/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pipeline: a store, a runner and echo workers in a directory of their own, for tests. Failures of
 * the machinery end the test program, so that it can also run in a child that is killed. */

#include "../../tree.h"
#include "base/clock.h"
#include "base/os.h"
#include "batch/create.h"
#include "batch/fsck.h"
#include "batch/parameters.h"
#include "batch/state.h"
#include "runner/runner.h"
#include "workers/echo/worker_echo.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS_MAX 120000
#define STEP_MS 20 /* time that passes per look of a waiting test whose clock is movable */

struct pipeline {
    char dir[64];
    struct store *store;
    struct runner *runner;
    struct worker *workers[4];
    /* Whether somebody is late for whom a movable clock has to wait; NULL: nobody ever is. */
    bool (*is_anyone_late)(void *context);
    void *context;
};

static atomic_llong test_unix_s = 1800000000;

static inline int64_t test_now(void) {
    return test_unix_s;
}

/* The monotonic clock without the test's own moves, for the deadlines of the test itself. */
static inline int64_t test_real_ns(void) {
    return clock_monotonic_ns() - clock_moved_ns();
}

#define must(call)                                                                                 \
    do {                                                                                           \
        if ((call) != OK) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, error.text);             \
            _exit(3);                                                                              \
        }                                                                                          \
    } while (0)

/* Jobs that an echo worker has answered. */
static inline uint64_t answered_by(struct worker *worker) {
    struct worker_status status;
    worker->ops->status(worker, &status);
    return status.steps;
}

static inline void pipeline_dir(struct pipeline *pipeline) {
    /* A kill is no power cut: memory keeps what was written, and syncs cost nothing there. */
    snprintf(pipeline->dir, sizeof pipeline->dir, "%s/quern-test-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(pipeline->dir)) abort();
    pipeline->is_anyone_late = NULL;
}

static inline void pipeline_remove(struct pipeline *pipeline) {
    tree_remove(pipeline->dir);
}

static inline void pipeline_open_store(struct pipeline *pipeline) {
    struct error error;
    struct store_options options = {
        .dir = pipeline->dir, .ballast_bytes = 1 << 16, .segment_bytes = 1 << 16};
    must(store_open(&pipeline->store, &options, &error));
}

/* Opens store and runner in `dir` and starts one echo worker for each options given. */
static inline void pipeline_open(struct pipeline *pipeline, const struct runner_options *options,
                                 const struct worker_echo_options *echo, size_t echo_count) {
    struct error error;
    struct runner_options own = *options;
    if (!own.now_unix_s) own.now_unix_s = test_now;
    pipeline_open_store(pipeline);
    must(runner_open(&pipeline->runner, pipeline->store, &own, &error));
    for (size_t i = 0; i < echo_count; i++) {
        struct worker_events events;
        uint32_t seat;
        if (!runner_worker_seat(pipeline->runner, &events, &seat)) abort();
        must(worker_echo_open(&pipeline->workers[i], &echo[i], &events, &error));
        runner_worker_attach(pipeline->runner, seat, pipeline->workers[i]);
    }
    must(runner_start(pipeline->runner, &error));
}

static inline void pipeline_close(struct pipeline *pipeline) {
    runner_close(pipeline->runner);
    store_close(pipeline->store);
}

static inline void pipeline_upload(struct pipeline *pipeline, struct str text, const char *purpose,
                                   char ret_id[STORE_ID_BYTES]) {
    struct error error;
    struct store_spool *spool;
    struct store_file file = {.created_unix_s = test_now()};
    snprintf(file.purpose, sizeof file.purpose, "%s", purpose);
    snprintf(file.filename, sizeof file.filename, "in.jsonl");
    must(store_spool_open(&spool, pipeline->store, &error));
    must(store_spool_write(spool, text.at, text.bytes, &error));
    must(store_spool_commit(spool, &file, &error));
    memcpy(ret_id, file.id, STORE_ID_BYTES);
}

static inline void pipeline_create(struct pipeline *pipeline, const char *file_id, int32_t priority,
                                   char ret_id[STORE_ID_BYTES]) {
    struct error error;
    struct batch_parameters parameters = {.endpoint = ENDPOINT_CHAT,
                                          .completion_window = "24h",
                                          .window_s = 86400,
                                          .priority = priority};
    snprintf(parameters.input_file_id, sizeof parameters.input_file_id, "%s", file_id);
    struct store_batch batch;
    bool existing;
    must(batch_create(pipeline->store, &parameters, test_now(), &batch, &existing, &error));
    memcpy(ret_id, batch.id, STORE_ID_BYTES);
    store_batch_release(&batch);
    runner_kick(pipeline->runner, ret_id);
}

/* `count` chat lines; line i says "<salt> i". */
static inline void add_chat_lines(struct buf *buf, const char *salt, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        buf_printf(buf,
                   "{\"custom_id\":\"%s-%u\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
                   "\"body\":{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":"
                   "\"%s %u \\u2028 \xF0\x9F\x98\x80\"}]}}\n",
                   salt, i, salt, i);
}

static inline void pipeline_submit(struct pipeline *pipeline, const char *salt, unsigned count,
                                   char ret_id[STORE_ID_BYTES]) {
    struct buf text;
    char file_id[STORE_ID_BYTES];
    buf_init(&text, BUF_UNLIMITED);
    add_chat_lines(&text, salt, count);
    pipeline_upload(pipeline, buf_str(&text), "batch", file_id);
    pipeline_create(pipeline, file_id, 0, ret_id);
    buf_release(&text);
}

/* A look of a waiting test goes by. */
static inline void pipeline_pass(struct pipeline *pipeline) {
    bool is_late = pipeline->is_anyone_late && pipeline->is_anyone_late(pipeline->context);
    if (clock_is_movable() && !is_late) clock_move_ms(STEP_MS);
    usleep(500);
}

typedef bool (*batch_test_fn)(const struct store_batch *batch);

static inline bool is_over(const struct store_batch *batch) {
    return batch_status_is_terminal(batch->status);
}

static inline bool is_running(const struct store_batch *batch) {
    return batch->status >= BATCH_IN_PROGRESS;
}

/* Waits until the batch is so; gives up after a minute. The caller releases what it returns. */
static inline struct store_batch pipeline_wait(struct pipeline *pipeline, const char *id,
                                               batch_test_fn test) {
    struct error error;
    struct store_batch batch;
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    for (;;) {
        must(runner_batch_get(pipeline->runner, str_from(id), &batch, &error));
        if (test(&batch)) return batch;
        if (test_real_ns() > until_ns) {
            fprintf(stderr, "%s is still %s with %llu + %llu of %llu\n", id,
                    batch_status_name(batch.status), (unsigned long long)batch.completed,
                    (unsigned long long)batch.failed, (unsigned long long)batch.total);
            _exit(4);
        }
        store_batch_release(&batch);
        pipeline_pass(pipeline);
    }
}

/* The bytes of a file, for the caller to free; NULL for an empty id. */
static inline char *pipeline_read(struct pipeline *pipeline, const char *file_id,
                                  size_t *ret_bytes) {
    struct error error;
    struct store_file file;
    int fd;
    *ret_bytes = 0;
    if (!*file_id) return NULL;
    must(store_file_open(pipeline->store, str_from(file_id), test_now(), &fd, &file, &error));
    char *bytes = malloc(file.bytes + 1);
    if (!bytes) abort();
    must(os_pread_all(fd, bytes, file.bytes, 0, &error));
    bytes[file.bytes] = '\0';
    *ret_bytes = file.bytes;
    os_close(fd);
    return bytes;
}

static inline size_t count_lines(const char *bytes, size_t count) {
    size_t lines = 0;
    for (size_t i = 0; i < count; i++) lines += bytes[i] == '\n';
    return lines;
}

static inline void print_violation(void *context, const char *sentence) {
    (void)context;
    fprintf(stderr, "violation: %s\n", sentence);
}

/* How many invariants the closed directory violates. */
static inline uint64_t pipeline_fsck(struct pipeline *pipeline) {
    struct error error;
    struct fsck_found found;
    must(fsck_run(pipeline->dir, print_violation, NULL, &found, &error));
    return found.violations;
}
