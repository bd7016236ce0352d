/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/runner.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/sync.h"
#include "batch/state.h"
#include "runner/leaders.h"
#include "runner/models.h"
#include "runner/results.h"
#include "runner/runner_internal.h"
#include "store/answers_forget.h"
#include "store/seglog_writer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void set_defaults(struct runner_options *options) {
    if (options->rules.lines_max == 0) options->rules = batch_rules_default();
    if (options->lookahead_lines == 0) options->lookahead_lines = 4096;
    if (options->lookahead_bytes == 0) options->lookahead_bytes = (uint64_t)32 << 20;
    if (options->requests_max == 0) options->requests_max = 1024;
    if (options->flex_requests_max == 0)
        options->flex_requests_max = (options->requests_max + 1) / 2;
    if (options->stuck_ms == 0) options->stuck_ms = 900000;
    if (options->attempts_max == 0) options->attempts_max = 5;
    if (options->lost_alone_max == 0) options->lost_alone_max = 3;
    if (options->retry_delay_ms == 0) options->retry_delay_ms = 100;
    if (options->cancel_deadline_ms == 0) options->cancel_deadline_ms = 5000;
    if (!options->now_unix_s) options->now_unix_s = clock_unix_s;
}

enum err runner_open(struct runner **ret_runner, struct store *store,
                     const struct runner_options *options, struct error *error) {
    struct runner *runner = mem_new(1, sizeof *runner);
    runner->store = store;
    runner->options = *options;
    runner->retention.store = store;
    runner->retention.keep_days = options->keep_days;
    set_defaults(&runner->options);
    runner->nonce = id_u64();
    /* A worker that outlives the server has jobs of two starts at a time: numbers do not meet. */
    runner->job_count = runner->nonce >> 22;
    runner->is_holding = options->holds_lines;
    line_reader_init(&runner->adopting, runner);
    buf_init(&runner->adopting_room, BUF_UNLIMITED);
    pthread_mutex_init(&runner->lock, NULL);
    sync_cond_init(&runner->work);
    sync_cond_init(&runner->helpers);
    sync_cond_init(&runner->idle);
    runner->reuse.followers_max = runner->options.lookahead_lines;
    buf_init(&runner->reuse.body, (size_t)2 << 20);
    runner->machine.history = history_open();
    enum err err = queue_open(&runner->queue, "local", error);
    if (err == OK)
        err = seglog_writer_open(&runner->writer, store, runner_on_durable, runner, error);
    if (err == OK && runner->options.result_cache_bytes == 0)
        err = result_cache_remove(store_dir(store), error);
    else if (err == OK)
        err = result_cache_open(&runner->reuse.cache, store_dir(store),
                                runner->options.result_cache_bytes, error);
    store_use_cache(store, runner->reuse.cache);
    if (err != OK) {
        runner_close(runner);
        return err;
    }
    *ret_runner = runner;
    return OK;
}

bool runner_worker_seat(struct runner *runner, struct worker_events *ret_events,
                        uint32_t *ret_seat) {
    pthread_mutex_lock(&runner->lock);
    bool there_is_one = runner->seat_count < RUNNER_WORKERS_MAX;
    if (there_is_one) {
        struct seat *seat = &runner->seats[runner->seat_count];
        *seat = (struct seat){.runner = runner,
                              .index = runner->seat_count,
                              .weight = 1,
                              .lines_max = runner->options.lookahead_lines};
        *ret_events = (struct worker_events){.context = seat,
                                             .delta = runner_on_delta,
                                             .result = runner_on_result,
                                             .down = runner_on_down,
                                             .room = runner_on_room};
        *ret_seat = runner->seat_count++;
    }
    pthread_mutex_unlock(&runner->lock);
    return there_is_one;
}

void runner_worker_attach(struct runner *runner, uint32_t seat, struct worker *worker) {
    pthread_mutex_lock(&runner->lock);
    assert(seat < runner->seat_count && !runner->seats[seat].worker);
    const bool is_late = runner->closes_workers;
    if (!is_late) runner->seats[seat].worker = worker;
    runner->seats[seat].looked_ns = clock_monotonic_ns();
    runner->progress++;
    pthread_cond_signal(&runner->work);
    pthread_cond_broadcast(&runner->helpers);
    pthread_mutex_unlock(&runner->lock);
    if (is_late) worker->ops->close(worker); /* a node that joined while the runner was halted */
}

void runner_worker_tune(struct runner *runner, uint32_t seat, uint32_t weight, uint32_t lines_max) {
    pthread_mutex_lock(&runner->lock);
    assert(seat < runner->seat_count);
    runner->seats[seat].weight = weight ? weight : 1;
    runner->seats[seat].lines_max = lines_max ? lines_max : runner->options.lookahead_lines;
    pthread_mutex_unlock(&runner->lock);
}

/* Every batch that is not terminal, oldest first. */
static enum err take_up_batches(struct runner *runner, struct error *error) {
    uint64_t after = 0;
    struct store_batch row;
    enum err err;
    while ((err = store_batch_next_live(runner->store, after, &row, error)) == OK) {
        after = row.sequence;
        pthread_mutex_lock(&runner->lock);
        if (active_find(runner, str_from(row.id))) {
            store_batch_release(&row);
        } else {
            runner->counters.taken_up_lines += row.total;
            active_adopt(runner, &row);
        }
        pthread_mutex_unlock(&runner->lock);
    }
    return err == ERR_NOT_FOUND ? OK : err;
}

static enum err start_threads(struct runner *runner, struct error *error) {
    const struct {
        pthread_t *thread;
        void *(*main)(void *);
        const char *name;
    } threads[RUNNER_THREADS] = {{&runner->dispatch_thread, dispatch_main, "dispatch"},
                                 {&runner->validate_thread, validate_main, "validate"},
                                 {&runner->publish_thread, publish_main, "publish"}};
    for (; runner->thread_count < RUNNER_THREADS; runner->thread_count++) {
        size_t at = runner->thread_count;
        int failed = pthread_create(threads[at].thread, NULL, threads[at].main, runner);
        if (failed != 0)
            return err_from_errno(error, failed, "cannot start the thread %s", threads[at].name);
        pthread_setname_np(*threads[at].thread, threads[at].name);
    }
    return OK;
}

enum err runner_start(struct runner *runner, struct error *error) {
    assert(!runner->is_started);
    int64_t begun_ns = clock_monotonic_ns();
    enum err err = take_up_batches(runner, error);
    if (err != OK) return err;
    runner->counters.recovery_ns += clock_monotonic_ns() - begun_ns; /* no other thread yet */
    runner->is_started = true;
    if (runner->options.keep_days)
        log_info("event=retention keep_days=%" PRIu32 "; ended batches are deleted after them",
                 runner->options.keep_days);
    return start_threads(runner, error);
}

bool runner_drain(struct runner *runner, int64_t deadline_ms) {
    int64_t due_ns = clock_monotonic_ns() + deadline_ms * 1000000;
    pthread_mutex_lock(&runner->lock);
    runner->is_draining = true;
    pthread_cond_signal(&runner->work);
    while ((runner->slots_taken > 0 || runner->request_count > 0) && clock_monotonic_ns() < due_ns)
        runner_wait(runner, &runner->idle, due_ns);
    bool all_done = runner->slots_taken == 0 && runner->request_count == 0;
    pthread_mutex_unlock(&runner->lock);
    log_info("event=drained in_flight=%s", all_done ? "none" : "some, which run again");
    return all_done;
}

void runner_quiesce(struct runner *runner) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    pthread_mutex_lock(&runner->lock);
    runner->is_draining = true;
    pthread_mutex_unlock(&runner->lock);
    size_t count = runner_workers(runner, workers);
    for (size_t i = 0; i < count; i++)
        if (workers[i]->ops->quiesce) workers[i]->ops->quiesce(workers[i]);
}

static void stop_threads(struct runner *runner) {
    pthread_mutex_lock(&runner->lock);
    runner->is_stopping = true;
    for (struct active_batch *batch = runner->batches; batch; batch = batch->next)
        batch->stop = true;
    pthread_cond_broadcast(&runner->work);
    pthread_cond_broadcast(&runner->helpers);
    pthread_mutex_unlock(&runner->lock);
    if (runner->thread_count > 0) pthread_join(runner->dispatch_thread, NULL);
    if (runner->thread_count > 1) pthread_join(runner->validate_thread, NULL);
    if (runner->thread_count > 2) pthread_join(runner->publish_thread, NULL);
}

void runner_halt(struct runner *runner) {
    if (runner->is_halted) return;
    runner->is_halted = true;
    stop_threads(runner);
    pthread_mutex_lock(&runner->lock);
    runner->closes_workers = true;
    pthread_mutex_unlock(&runner->lock);
    for (uint32_t i = 0; i < runner->seat_count; i++) {
        struct worker *worker = runner->seats[i].worker;
        if (worker) worker->ops->close(worker);
        runner->seats[i].worker = NULL;
    }
    requests_fail_all(runner);
    seglog_writer_close(runner->writer);
}

void runner_close(struct runner *runner) {
    if (!runner) return;
    runner_halt(runner);
    for (struct active_batch *batch = runner->batches; batch; batch = batch->next)
        leaders_forget(runner, batch);
    store_use_cache(runner->store, NULL);
    result_cache_close(runner->reuse.cache);
    buf_release(&runner->reuse.body);
    for (struct active_batch *batch = runner->batches, *next; batch; batch = next) {
        next = batch->next;
        batch->in_flight = 0;
        active_free(batch);
    }
    slots_release(runner);
    line_reader_release(&runner->adopting);
    buf_release(&runner->adopting_room);
    if (runner->queue) runner->queue->ops->close(runner->queue);
    pthread_cond_destroy(&runner->work);
    pthread_cond_destroy(&runner->helpers);
    pthread_cond_destroy(&runner->idle);
    pthread_mutex_destroy(&runner->lock);
    history_close(runner->machine.history);
    free(runner);
}
