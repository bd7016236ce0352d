/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/engine/worker_engine.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/sync.h"
#include "workers/engine/engine_internal.h"
#include "workers/engine/weights.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct worker_engine *engine_of(struct worker *worker) {
    return (struct worker_engine *)(void *)worker;
}

static void wake(const struct worker_engine *engine) {
    uint64_t one = 1;
    ssize_t count = write(engine->wake_fd, &one, sizeof one);
    (void)count; /* a full counter has woken it already */
}

/* Makes the job's frame; `overflowed` if it is too large for one. */
static struct buf make_frame(const struct worker_job *job) {
    const struct wire_job message = {.endpoint = job->endpoint,
                                     .tier = job->tier,
                                     .stream = job->stream,
                                     .is_line = job->is_line,
                                     .priority = job->priority,
                                     .body = job->body,
                                     .owner = str_from(job->owner)};
    struct buf frame;
    buf_init(&frame, WIRE_HEADER_BYTES + WIRE_PAYLOAD_BYTES_MAX);
    size_t at = wire_begin(&frame, WIRE_JOB, job->id, 0);
    wire_put_job(&frame, &message);
    wire_end(&frame, at);
    frame.bytes_max = WORKER_ENGINE_OUT_BYTES_MAX;
    return frame;
}

/* Queues a frame, which it takes over. The lock is held: a long frame is not copied. */
static void queue_frame(struct worker_engine *engine, uint64_t job_id, struct buf *frame) {
    if (frame->overflowed) {
        engine->too_large[engine->too_large_count++] = job_id;
    } else if (engine->out.bytes == 0) {
        struct buf empty = engine->out;
        engine->out = *frame;
        *frame = empty;
    } else {
        buf_add_str(&engine->out, buf_str(frame));
    }
    assert(!engine->out.overflowed);
}

/* Lines can wait, whatever the tier of their batch. */
static enum tier urgency_of(const struct worker_job *job) {
    return job->is_line ? TIER_BATCH : job->tier;
}

static bool can_take(struct worker_engine *engine) {
    return worker_engine_has_room(engine) && engine->too_large_count < WORKER_TOO_LARGE_MAX;
}

/* A job waits for the model. */
static void demand(struct worker_engine *engine, enum tier tier, int64_t deadline_unix_s) {
    if (engine->turns) {
        turns_want(engine->turns, engine->member, tier, deadline_unix_s);
    } else if (engine_turn_rouse(engine)) {
        wake(engine);
    }
}

static bool submit(struct worker *worker, const struct worker_job *job) {
    struct worker_engine *engine = engine_of(worker);
    struct buf frame;
    buf_init(&frame, 0);
    pthread_mutex_lock(&engine->lock);
    bool is_taken = can_take(engine), is_held;
    if (is_taken) {
        /* The frame is made without the lock, for which probes of health wait. */
        pthread_mutex_unlock(&engine->lock);
        frame = make_frame(job);
        pthread_mutex_lock(&engine->lock);
        is_taken = can_take(engine);
    }
    if (is_taken) {
        engine->jobs[engine->job_count++] =
            (struct engine_job){.id = job->id, .is_line = job->is_line};
        engine->keep_ms = job->keep_ms && !engine->stays ? job->keep_ms : engine->keep_usual_ms;
        engine->had_line = job->is_line;
        queue_frame(engine, job->id, &frame);
        if (engine->turns)
            turns_job(engine->turns, engine->member, urgency_of(job), job->deadline_unix_s);
    } else {
        engine->wants_room = true;
    }
    is_held = engine->is_held;
    pthread_mutex_unlock(&engine->lock);
    buf_release(&frame);
    if (is_taken) wake(engine);
    if (!is_taken && !is_held) demand(engine, urgency_of(job), job->deadline_unix_s);
    return is_taken;
}

static void want(struct worker *worker, enum tier tier, int64_t deadline_unix_s) {
    struct worker_engine *engine = engine_of(worker);
    pthread_mutex_lock(&engine->lock);
    bool is_held = engine->is_held;
    pthread_mutex_unlock(&engine->lock);
    if (!is_held) demand(engine, tier, deadline_unix_s);
}

static void park(struct worker *worker) {
    struct worker_engine *engine = engine_of(worker);
    if (engine->stays) return; /* it never changes */
    engine_turn_park(engine);
    wake(engine);
}

static void hold(struct worker *worker, bool is_held) {
    struct worker_engine *engine = engine_of(worker);
    pthread_mutex_lock(&engine->lock);
    engine->is_held = is_held;
    pthread_mutex_unlock(&engine->lock);
    wake(engine);
    /* A person waits, so the load is as urgent as a request. */
    if (!is_held) want(worker, TIER_DEFAULT, 0);
}

static void retire(struct worker *worker, bool is_retired) {
    struct worker_engine *engine = engine_of(worker);
    pthread_mutex_lock(&engine->lock);
    engine->is_retired = engine->is_held = is_retired;
    pthread_mutex_unlock(&engine->lock);
    wake(engine);
}

static void cancel(struct worker *worker, uint64_t job_id) {
    struct worker_engine *engine = engine_of(worker);
    pthread_mutex_lock(&engine->lock);
    /* Without room, the job ends sooner than its cancel would arrive. */
    bool is_sent = engine->phase == PHASE_READY &&
                   engine->out.bytes < WORKER_ENGINE_OUT_BYTES_MAX - WIRE_HEADER_BYTES;
    if (is_sent) wire_write(&engine->out, WIRE_CANCEL, job_id, 0, STR(""));
    pthread_mutex_unlock(&engine->lock);
    if (is_sent) wake(engine);
}

static const struct wire_names *names_of(const struct worker_engine *engine) {
    static const struct wire_names none = {.count = 0};
    if (engine->is_retired) return &none;
    return engine->names.count > 0 || !engine->has_ready ? &engine->names : &engine->ready.names;
}

static bool serves(struct worker *worker, struct str model) {
    struct worker_engine *engine = engine_of(worker);
    pthread_mutex_lock(&engine->lock);
    const struct wire_names *names = names_of(engine);
    bool is_served = false;
    for (size_t i = 0; i < names->count && !is_served; i++)
        is_served = str_equals(names->at[i], model);
    pthread_mutex_unlock(&engine->lock);
    return is_served;
}

/* The names live as long as the worker: those of the first READY are kept. */
static size_t models(struct worker *worker, struct worker_model *ret_models, size_t models_max) {
    struct worker_engine *engine = engine_of(worker);
    pthread_mutex_lock(&engine->lock);
    const struct wire_names *names = names_of(engine);
    const struct wire_ready *is = engine->has_ready ? &engine->ready : &engine->foretold;
    size_t count = names->count < models_max ? names->count : models_max;
    for (size_t i = 0; i < count; i++)
        ret_models[i] = (struct worker_model){
            .name = names->at[i],
            .created_unix_s = is->created_unix_s,
            .context_tokens_max = is->context_tokens_max,
            .generates = is->generates,
            .embeds = is->embeds,
            .decides = is->decides,
            .about = is->about,
        };
    pthread_mutex_unlock(&engine->lock);
    return count;
}

/* The UUID of "cuda:UUID"; a number does not name a GPU for long. */
static void card_of(struct str device, char ret_uuid[CARD_UUID_BYTES]) {
    const char *colon = memchr(device.at, ':', device.bytes);
    if (!colon) return;
    struct str uuid = {colon + 1, device.bytes - (size_t)(colon + 1 - device.at)};
    if (!str_starts_with(uuid, STR("GPU-")) || uuid.bytes >= CARD_UUID_BYTES) return;
    memcpy(ret_uuid, uuid.at, uuid.bytes);
    ret_uuid[uuid.bytes] = '\0';
}

static void status(struct worker *worker, struct worker_status *ret_status) {
    struct worker_engine *engine = engine_of(worker);
    pthread_mutex_lock(&engine->lock);
    const struct wire_stats *stats = &engine->stats, *ended = &engine->ended;
    *ret_status = (struct worker_status){
        .ready = engine->phase == PHASE_READY && !engine->is_closing && !engine->is_leaving,
        .is_parked = engine->phase == PHASE_PARKED,
        .can_unload = true,
        .is_held = engine->is_held,
        .leaves_ms = engine_turn_leaves_ms(engine),
        .is_failed = engine->phase == PHASE_FAILED,
        .knows_names = engine->names.count > 0 || engine->has_ready,
        .running = stats->running,
        .waiting = stats->waiting,
        .restarts = engine->restarts,
        .steps = ended->steps + stats->steps,
        .prompt_tokens = ended->prompt_tokens + stats->prompt_tokens,
        .prefix_queries = ended->prefix_queries + stats->prefix_queries,
        .cached_tokens = ended->cached_tokens + stats->cached_tokens,
        .completion_tokens = ended->completion_tokens + stats->completion_tokens,
        .preemptions = ended->preemptions + stats->preemptions,
        .nonfinite_rows = ended->nonfinite_rows + stats->nonfinite_rows,
        .drafts = ended->drafts + stats->drafts,
        .draft_tokens = ended->draft_tokens + stats->draft_tokens,
        .accepted_tokens = ended->accepted_tokens + stats->accepted_tokens,
        .state_saves = ended->state_saves + stats->state_saves,
        .state_hits = ended->state_hits + stats->state_hits,
        .state_evictions = ended->state_evictions + stats->state_evictions,
        .states_stored = stats->states_stored,
        .kv_used = stats->kv_used,
        .token_age_ms = stats->token_age_ms,
        .step_ms_max = engine->step_ms_max,
        .memory_bytes = engine->memory_bytes,
        .process = (int)engine->process,
    };
    if (engine->has_ready && engine->phase == PHASE_READY) {
        card_of(engine->ready.device, ret_status->card);
        ret_status->ledger = engine->ready.ledger;
    }
    /* Measured here, because an engine that hangs sends no STATS. */
    if (engine->phase == PHASE_READY && engine->job_count > 0)
        ret_status->step_age_ms = (clock_monotonic_ns() - engine->moved_ns) / NS_PER_MS;
    static const char *const texts[] = {"loading", "ready", "not loaded",
                                        "restarting: ", "failed: "};
    /* It lacks the GPU while it is down, and while the next child looks for the GPU. */
    if (engine->held_pid > 0)
        snprintf(ret_status->text, sizeof ret_status->text,
                 "waiting for its killed process %d to end: %.100s", (int)engine->held_pid,
                 engine->reason);
    else if (engine->is_held)
        snprintf(ret_status->text, sizeof ret_status->text, "%s by an administrator",
                 engine->phase == PHASE_PARKED ? "unloaded" : "being unloaded");
    else if (engine->lacks_card)
        snprintf(ret_status->text, sizeof ret_status->text, "waiting for its GPU: %.130s",
                 engine->reason);
    else
        snprintf(ret_status->text, sizeof ret_status->text, "%s%.140s", texts[engine->phase],
                 engine->phase >= PHASE_DOWN ? engine->reason : "");
    pthread_mutex_unlock(&engine->lock);
}

static uint32_t timings(struct worker *worker, struct timings *ret_timings) {
    struct worker_engine *engine = engine_of(worker);
    pthread_mutex_lock(&engine->lock);
    *ret_timings = engine->ended.timings;
    timings_merge(ret_timings, &engine->stats.timings);
    pthread_mutex_unlock(&engine->lock);
    return (1u << TIMING_COUNT) - 1;
}

/* The model's path as HELLO has it; false if it is too long. */
static bool model_path(const struct worker_engine *engine, struct wire_hello *ret_hello,
                       char ret_path[PATH_MAX]) {
    if (wire_get_hello(buf_str(&engine->hello), ret_hello, NULL) != OK) return false;
    if (ret_hello->model_path.bytes >= PATH_MAX) return false;
    memcpy(ret_path, ret_hello->model_path.at, ret_hello->model_path.bytes);
    ret_path[ret_hello->model_path.bytes] = '\0';
    return true;
}

/* Hashes the HELLO, the model's file as it is now, and this version. A file that was written in
 * place has another time. */
static bool identity(struct worker *worker, struct str model,
                     unsigned char ret_identity[WORKER_IDENTITY_BYTES]) {
    struct worker_engine *engine = engine_of(worker);
    struct wire_hello hello;
    struct stat file;
    char path[PATH_MAX];
    (void)model;
    if (!model_path(engine, &hello, path) || stat(path, &file) != 0) return false;
    const int64_t facts[] = {(int64_t)file.st_dev, (int64_t)file.st_ino, file.st_size,
                             file.st_mtim.tv_sec, file.st_mtim.tv_nsec};
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, QUERN_VERSION, sizeof QUERN_VERSION);
    sha256_add(&hash, facts, sizeof facts);
    /* The folder of packed weights changes no answer. */
    hello.packed_dir = (struct str){NULL, 0};
    hello.packed_bytes_max = 0;
    struct buf asked;
    buf_init(&asked, 1024 * 1024);
    wire_put_hello(&asked, &hello);
    sha256_add(&hash, asked.at, asked.bytes);
    buf_release(&asked);
    sha256_end(&hash, ret_identity);
    return true;
}

/* Reads the weights once, and again when the file or folder is another. */
static bool weights(struct worker *worker, struct str model,
                    unsigned char ret_mark[WORKER_IDENTITY_BYTES]) {
    struct worker_engine *engine = engine_of(worker);
    struct wire_hello hello;
    struct stat file;
    char path[PATH_MAX];
    unsigned char mark[WEIGHTS_MARK_BYTES];
    (void)model;
    if (!model_path(engine, &hello, path) || stat(path, &file) != 0) return false;
    const int64_t facts[] = {(int64_t)file.st_ino, file.st_size, file.st_mtim.tv_sec,
                             file.st_mtim.tv_nsec};
    pthread_mutex_lock(&engine->lock);
    bool is_known = memcmp(facts, engine->mark_facts, sizeof facts) == 0;
    bool has_mark = engine->has_mark;
    memcpy(mark, engine->mark, sizeof mark);
    pthread_mutex_unlock(&engine->lock);
    if (!is_known) {
        has_mark = weights_mark(path, mark);
        pthread_mutex_lock(&engine->lock);
        memcpy(engine->mark_facts, facts, sizeof facts);
        memcpy(engine->mark, mark, sizeof mark);
        engine->has_mark = has_mark;
        pthread_mutex_unlock(&engine->lock);
    }
    if (has_mark) memcpy(ret_mark, mark, sizeof mark);
    return has_mark;
}

static void release(struct worker_engine *engine) {
    os_close(engine->wake_fd);
    wire_reader_release(&engine->reader);
    buf_release(&engine->hello);
    buf_release(&engine->out);
    buf_release(&engine->sending);
    buf_release(&engine->ready_payload);
    buf_release(&engine->foretold_payload);
    for (size_t i = 0; engine->arguments && engine->arguments[i]; i++) free(engine->arguments[i]);
    free(engine->arguments);
    free(engine->program);
    free(engine->dump_dir);
    free(engine->jobs);
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

static void close_worker(struct worker *worker) {
    struct worker_engine *engine = engine_of(worker);
    pthread_mutex_lock(&engine->lock);
    engine->is_closing = true;
    pthread_mutex_unlock(&engine->lock);
    wake(engine);
    if (engine->has_thread) pthread_join(engine->thread, NULL);
    if (engine->turns) turns_leave(engine->turns, engine->member);
    release(engine);
}

static void wake_up(void *context) {
    wake(context);
}

static char *copy_text(const char *text) {
    char *copy = mem_text(text);
    return copy;
}

static void copy_options(struct worker_engine *engine,
                         const struct worker_engine_options *options) {
    static const char *const plain[] = {"engine", NULL};
    const char *const *arguments = options->arguments ? options->arguments : plain;
    size_t count = 0;
    while (arguments[count]) count++;
    engine->program = copy_text(options->program ? options->program : "/proc/self/exe");
    engine->arguments = mem_new(count + 1, sizeof *engine->arguments);
    for (size_t i = 0; i < count; i++) engine->arguments[i] = copy_text(arguments[i]);
    if (options->dump_dir) engine->dump_dir = copy_text(options->dump_dir);
    engine->jobs_max = options->jobs_max ? options->jobs_max : WORKER_ENGINE_JOBS_MAX;
    engine->jobs = mem_new(engine->jobs_max, sizeof *engine->jobs);
    engine->hang_ns = options->hang_ms * NS_PER_MS;
    engine->load_ns = (options->load_ms ? options->load_ms : 900000) * NS_PER_MS;
    engine->restart_delay_ms = options->restart_delay_ms ? options->restart_delay_ms : 200;
    engine->close_ms = options->close_ms ? options->close_ms : 2000;
    engine->kill_ms = options->kill_ms ? options->kill_ms : 10000;
    engine->keep_ms = engine->keep_usual_ms = options->keep_ms;
    engine->stays = options->stays;
    struct wire_hello hello = options->hello, kept;
    hello.version = WIRE_VERSION;
    wire_put_hello(&engine->hello, &hello);
    enum err err = wire_get_hello(buf_str(&engine->hello), &kept, NULL);
    assert(err == OK);
    engine->names = kept.names;
    if (options->foretold.names.count == 0) return;
    struct wire_ready foretold = options->foretold;
    foretold.version = WIRE_VERSION;
    wire_put_ready(&engine->foretold_payload, &foretold);
    err = wire_get_ready(buf_str(&engine->foretold_payload), &engine->foretold, NULL);
    assert(err == OK);
}

enum err worker_engine_open(struct worker **ret_worker, const struct worker_engine_options *options,
                            const struct worker_events *events, struct error *error) {
    static const struct worker_ops ops = {.shapes = SHAPES_HELD,
                                          .submit = submit,
                                          .cancel = cancel,
                                          .serves = serves,
                                          .models = models,
                                          .status = status,
                                          .timings = timings,
                                          .identity = identity,
                                          .weights = weights,
                                          .want = want,
                                          .hold = hold,
                                          .park = park,
                                          .retire = retire,
                                          .close = close_worker};
    int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0) return err_from_errno(error, errno, "cannot make an eventfd");
    struct worker_engine *engine = mem_new(1, sizeof *engine);
    engine->worker.ops = &ops;
    engine->events = *events;
    engine->wake_fd = wake_fd;
    pthread_mutex_init(&engine->lock, NULL);
    sync_cond_init(&engine->changed);
    buf_init(&engine->hello, 1024 * 1024);
    buf_init(&engine->out, WORKER_ENGINE_OUT_BYTES_MAX);
    buf_init(&engine->sending, WORKER_ENGINE_OUT_BYTES_MAX);
    buf_init(&engine->ready_payload, WIRE_PAYLOAD_BYTES_MAX);
    buf_init(&engine->foretold_payload, WIRE_PAYLOAD_BYTES_MAX);
    wire_reader_init(&engine->reader);
    copy_options(engine, options);
    engine->turns = options->turns;
    if (engine->turns) {
        engine->phase = PHASE_PARKED;
        engine->member = turns_join(engine->turns, wake_up, engine);
        turns_weigh(engine->turns, engine->member, options->memory_bytes);
    }
    if (options->refusal) {
        if (engine->turns) turns_report(engine->turns, engine->member, TURN_FAILED);
        worker_engine_set_phase(engine, PHASE_FAILED, options->refusal);
        *ret_worker = &engine->worker;
        return OK;
    }
    int number = pthread_create(&engine->thread, NULL, worker_engine_supervise, engine);
    if (number != 0) {
        if (engine->turns) turns_leave(engine->turns, engine->member);
        release(engine);
        return err_from_errno(error, number, "cannot start the engine's thread");
    }
    engine->has_thread = true;
    pthread_setname_np(engine->thread, "quern-worker");
    *ret_worker = &engine->worker;
    return OK;
}

enum err worker_engine_wait_ready(struct worker *worker, int64_t timeout_ms, struct error *error) {
    struct worker_engine *engine = engine_of(worker);
    int64_t due_ns = sync_deadline_ns(timeout_ms);
    enum err err = OK;
    pthread_mutex_lock(&engine->lock);
    while (engine->phase != PHASE_READY && engine->phase != PHASE_FAILED &&
           sync_wait_until(&engine->changed, &engine->lock, due_ns)) {
    }
    if (engine->phase == PHASE_FAILED)
        err = err_set(error, ERR_INVALID, "%s", engine->reason);
    else if (engine->phase != PHASE_READY)
        err = err_set(error, ERR_UNAVAILABLE, "the engine is not ready after %lld ms",
                      (long long)timeout_ms);
    pthread_mutex_unlock(&engine->lock);
    return err;
}
