/* SPDX-License-Identifier: Apache-2.0 */

/* The validate thread: checks new batches one after another, and loads batches that could not be
 * loaded at once. */

#include "batch/validate.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "runner/active_end.h"
#include "runner/models.h"
#include "runner/runner_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_NS 200000000
#define AGAIN_NS 1000000000
#define FULL_AGAIN_NS 100000000

struct asker {
    struct runner *runner;
    struct active_batch *batch;
    bool gives_way; /* it waits for a model, and another batch need not */
};

static bool is_stopped(void *context) {
    struct asker *asker = context;
    pthread_mutex_lock(&asker->runner->lock);
    bool stopped = asker->batch->stop || asker->runner->is_stopping || asker->gives_way;
    pthread_mutex_unlock(&asker->runner->lock);
    return stopped;
}

/* True if another batch can be validated now. The lock is held. */
static bool others_wait(const struct runner *runner, const struct active_batch *self,
                        int64_t now_ns) {
    for (const struct active_batch *batch = runner->batches; batch; batch = batch->next)
        if (batch != self && batch->phase == PHASE_VALIDATE && batch->due_ns <= now_ns) return true;
    return false;
}

static void await(struct asker *asker, struct str model) {
    struct active_batch *batch = asker->batch;
    pthread_mutex_lock(&asker->runner->lock);
    snprintf(batch->awaits_model, sizeof batch->awaits_model, "%.*s", STR_ARGS(model));
    pthread_mutex_unlock(&asker->runner->lock);
}

/* Waits for a worker that is still loading and may serve the model, so that a batch does not fail
 * because it came early. Gives way to other batches meanwhile. */
static bool serves(void *context, struct str model) {
    struct asker *asker = context;
    struct runner *runner = asker->runner;
    for (;;) {
        enum serving serving = runner_serving(runner, model);
        if (serving == NOT_SERVED && runner_look(runner)) serving = runner_serving(runner, model);
        await(asker, serving == SERVING_UNKNOWN ? model : STR(""));
        if (serving != SERVING_UNKNOWN) return serving == SERVED;
        if (is_stopped(asker)) return false;
        pthread_mutex_lock(&runner->lock);
        runner_wait(runner, &runner->helpers, clock_monotonic_ns() + WAIT_NS);
        asker->gives_way = others_wait(runner, asker->batch, clock_monotonic_ns());
        bool is_over = runner_now_unix_s(runner) >= asker->batch->row.expires_unix_s;
        pthread_mutex_unlock(&runner->lock);
        if (is_over) return true; /* the window has closed; its lines expire */
    }
}

static bool default_model(void *context, char ret_model[MODEL_NAME_BYTES]) {
    struct asker *asker = context;
    struct runner *runner = asker->runner;
    for (;;) {
        enum serving serving = runner_default_model(runner, ret_model);
        if (serving != SERVING_UNKNOWN) return serving == SERVED;
        if (is_stopped(asker)) return false;
        pthread_mutex_lock(&runner->lock);
        runner_wait(runner, &runner->helpers, clock_monotonic_ns() + WAIT_NS);
        bool is_over = runner_now_unix_s(runner) >= asker->batch->row.expires_unix_s;
        pthread_mutex_unlock(&runner->lock);
        if (is_over) return false;
    }
}

static enum shape_handling handles_shapes(void *context, struct str model) {
    struct asker *asker = context;
    return runner_shapes(asker->runner, model);
}

static void advise(void *context, struct str model, struct buf *advice) {
    struct asker *asker = context;
    runner_write_advice(asker->runner, model, advice);
}

/* Opens the input; *ret_errors when it is missing or for something else. *ret_fd is -1 or the
 * caller's. */
static enum err open_input(struct runner *runner, struct active_batch *batch, int *ret_fd,
                           uint64_t *ret_bytes, char **ret_errors, struct error *error) {
    struct store_file file;
    char message[200];
    *ret_fd = -1;
    enum err err = store_input_open(runner->store, str_from(batch->row.input_file_id),
                                    batch->row.created_unix_s, ret_fd, &file, error);
    /* Another owner's file is not there for this one. */
    if (err == OK && strcmp(file.owner, batch->row.owner) != 0) {
        os_close(*ret_fd);
        *ret_fd = -1;
        err = ERR_NOT_FOUND;
    }
    if (err == ERR_NOT_FOUND) {
        snprintf(message, sizeof message, "Cannot find file '%s', or it is no longer available.",
                 batch->row.input_file_id);
        *ret_errors = batch_single_error("invalid_request", "file_id", message);
        return OK;
    }
    if (err != OK) return err;
    if (strcmp(file.purpose, "batch") != 0) {
        snprintf(message, sizeof message,
                 "The file '%s' has the purpose '%s'; a batch needs one with the purpose 'batch'.",
                 file.id, file.purpose);
        *ret_errors = batch_single_error("invalid_request", "file_id", message);
    }
    memcpy(batch->input_sha256, file.sha256, SHA256_BYTES);
    *ret_bytes = file.bytes;
    return OK;
}

static enum err check_opened(struct runner *runner, struct active_batch *batch, int fd,
                             uint64_t bytes, struct batch_validation *ret_result,
                             struct error *error) {
    char dir[4096], path[4200];
    enum err err = store_batch_dir(runner->store, batch->row.id, dir, sizeof dir, error);
    if (err != OK) return err;
    snprintf(path, sizeof path, "%s/lines.idx", dir);
    struct asker asker = {.runner = runner, .batch = batch};
    struct batch_validate_options options = {.input_fd = fd,
                                             .input_bytes = bytes,
                                             .input_sha256 = batch->input_sha256,
                                             .index_path = path,
                                             .endpoint = batch->endpoint,
                                             .rules = runner->options.rules,
                                             .context = &asker,
                                             .serves = serves,
                                             .default_model = default_model,
                                             .advise = advise,
                                             .shapes = shape_check_open(SHAPE_CHECK_WORK_MAX),
                                             .handles_shapes = handles_shapes,
                                             .stopped = is_stopped};
    err = batch_validate(&options, ret_result, error);
    shape_check_close(options.shapes);
    /* An answer given because of a stop is no answer. */
    if (err == OK && is_stopped(&asker)) err = err_set(error, ERR_CANCELLED, "stopped");
    if (err != ERR_CORRUPT) return err;
    log_error("batch=%s event=input_damaged error=\"%s\"", batch->row.id, error->text);
    batch_validation_release(ret_result);
    ret_result->errors = batch_single_error("internal_error", "file_id",
                                            "The input file was damaged on the server's disk.");
    return OK;
}

/* Does the long part, the reading of the file, without the lock. */
static enum err check_file(struct runner *runner, struct active_batch *batch,
                           struct batch_validation *ret_result, struct error *error) {
    uint64_t bytes = 0;
    int fd;
    *ret_result = (struct batch_validation){0};
    enum err err = open_input(runner, batch, &fd, &bytes, &ret_result->errors, error);
    if (err == OK && !ret_result->errors)
        err = check_opened(runner, batch, fd, bytes, ret_result, error);
    os_close(fd);
    return err;
}

/* The file is refused. The lock is held. */
static void fail(struct runner *runner, struct active_batch *batch, char *errors) {
    struct error error;
    free(batch->row.errors);
    batch->row.errors = errors;
    enum err err = active_move(runner, batch, BATCH_FAILED, &error);
    if (err != OK) {
        log_warn("batch=%s error=\"%s\", retrying", batch->row.id, error.text);
        batch->phase = PHASE_VALIDATE;
        batch->due_ns = clock_monotonic_ns() + AGAIN_NS;
        return;
    }
    log_info("batch=%s event=failed_validation", batch->row.id);
    char id[STORE_ID_BYTES];
    memcpy(id, batch->row.id, sizeof id);
    active_remove(runner, batch);
    if (store_batch_forget_log(runner->store, id, &error) != OK)
        log_warn("batch=%s error=\"%s\"", id, error.text);
}

/* The file is good. The lock is held. */
static enum err begin(struct runner *runner, struct active_batch *batch,
                      const struct batch_validation *result, struct error *error) {
    batch->row.total = result->total;
    batch->row.has_usage = true;
    memcpy(batch->row.model, result->model, sizeof batch->row.model);
    enum err err = active_move(runner, batch, BATCH_IN_PROGRESS, error);
    if (err != OK) {
        batch->row.total = 0;
        batch->row.has_usage = false;
        batch->row.model[0] = '\0';
        return err;
    }
    log_info("batch=%s event=in_progress requests=%llu", batch->row.id,
             (unsigned long long)result->total);
    err = active_load(runner, batch, error);
    if (err == OK) active_start_lines(runner, batch);
    return err;
}

/* The lock is held, and let go while the file is read. */
static void validate(struct runner *runner, struct active_batch *batch) {
    struct batch_validation result;
    struct error error = {0};
    if (!store_has_room(runner->store, 0)) { /* the store has logged it */
        batch->due_ns = clock_monotonic_ns() + FULL_AGAIN_NS;
        return;
    }
    batch->phase = PHASE_VALIDATING;
    pthread_mutex_unlock(&runner->lock);
    enum err err = check_file(runner, batch, &result, &error);
    pthread_mutex_lock(&runner->lock);
    if (batch->row.status == BATCH_CANCELLING) {
        batch->phase = PHASE_PUBLISH;
        batch->due_ns = 0;
        pthread_cond_broadcast(&runner->helpers);
        err = ERR_CANCELLED;
    } else if (err == OK && result.errors) {
        fail(runner, batch, result.errors);
        result.errors = NULL;
    } else if (err == OK) {
        err = begin(runner, batch, &result, &error);
    }
    if (err == ERR_UNAVAILABLE) store_disk_filled(runner->store);
    if (err != OK && err != ERR_CANCELLED)
        log_warn("batch=%s error=\"%s\", retrying", batch->row.id, error.text);
    if (err != OK && batch->row.status != BATCH_CANCELLING) {
        batch->phase = PHASE_VALIDATE;
        batch->due_ns = clock_monotonic_ns() + AGAIN_NS;
    }
    batch_validation_release(&result);
    pthread_cond_signal(&runner->work);
}

/* A batch that is past validation, but could not be opened before. The lock is held. */
static void load_again(struct runner *runner, struct active_batch *batch) {
    struct cancel_list cancel = {0};
    struct error error;
    enum err err = active_load(runner, batch, &error);
    if (err == OK) {
        active_start_lines(runner, batch);
        pthread_cond_signal(&runner->work);
        return;
    }
    if (err == ERR_UNAVAILABLE) store_disk_filled(runner->store);
    log_warn("batch=%s error=\"%s\", retrying", batch->row.id, error.text);
    batch->due_ns = clock_monotonic_ns() + AGAIN_NS;
    if (err != ERR_CORRUPT && err != ERR_NOT_FOUND) return;
    /* The existing results are published; the other lines cannot run. */
    active_fault(runner, batch, "The batch's input can no longer be read.", &cancel);
    cancel_list_send(&cancel);
    if (batch->phase == PHASE_END) batch->phase = PHASE_PUBLISH;
    pthread_cond_broadcast(&runner->helpers);
}

static struct active_batch *next_due(struct runner *runner, int64_t now_ns) {
    for (struct active_batch *batch = runner->batches; batch; batch = batch->next)
        if (batch->phase == PHASE_VALIDATE && batch->due_ns <= now_ns) return batch;
    return NULL;
}

void *validate_main(void *context) {
    struct runner *runner = context;
    pthread_mutex_lock(&runner->lock);
    while (!runner->is_stopping) {
        int64_t now_ns = clock_monotonic_ns();
        struct active_batch *batch = runner->is_draining ? NULL : next_due(runner, now_ns);
        if (runner->missed_due_ns > 0 && runner->missed_due_ns <= now_ns) {
            runner->missed_due_ns = 0;
            pthread_mutex_unlock(&runner->lock);
            runner_kick_missed(runner);
            pthread_mutex_lock(&runner->lock);
            continue;
        }
        if (!batch)
            runner_wait(runner, &runner->helpers, now_ns + WAIT_NS);
        else if (batch->row.status == BATCH_VALIDATING)
            validate(runner, batch);
        else
            load_again(runner, batch);
    }
    pthread_mutex_unlock(&runner->lock);
    return NULL;
}
