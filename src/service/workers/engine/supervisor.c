/* SPDX-License-Identifier: Apache-2.0 */

/* The thread of a worker_engine: starts the child, talks to it, watches it and ends it. Its death
 * is death.c's. */

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "json/envelope.h"
#include "workers/engine/dump.h"
#include "workers/engine/engine_internal.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PING_PERIOD_NS ((int64_t)1000000000)
#define POLL_MS 250
#define TERM_PATIENCE_MS 1000
/* The default of hang_ms. A step with a long prompt takes far longer than one without, so an engine
 * that has done few steps is given more time. */
#define HANG_STEPS 20
#define HANG_NS_MIN (60 * NS_PER_S)
#define HANG_NS_UNKNOWN (300 * NS_PER_S)
#define KNOWN_STEPS 1000
#define BUFFER_BYTES_KEPT ((size_t)1 << 20) /* a larger one is given back once it is sent */
#define UNSEEN_NS_MAX (5 * NS_PER_S)

static bool find_job(struct worker_engine *engine, uint64_t id, uint32_t *ret_at) {
    uint32_t at = 0;
    while (at < engine->job_count && engine->jobs[at].id != id) at++;
    *ret_at = at;
    return at < engine->job_count;
}

static bool has_job(struct worker_engine *engine, uint64_t id) {
    uint32_t at;
    pthread_mutex_lock(&engine->lock);
    bool is_found = find_job(engine, id, &at);
    pthread_mutex_unlock(&engine->lock);
    return is_found;
}

/* Takes the job out; false if the worker does not have it. */
static bool take_job(struct worker_engine *engine, uint64_t id, struct engine_job *ret_job) {
    uint32_t at;
    pthread_mutex_lock(&engine->lock);
    bool is_found = find_job(engine, id, &at);
    if (is_found) {
        *ret_job = engine->jobs[at];
        engine->jobs[at] = engine->jobs[--engine->job_count];
        if (engine->job_count == 0) engine->idle_ns = clock_monotonic_ns();
        if (engine->turns) turns_jobs_left(engine->turns, engine->member, engine->job_count);
    }
    pthread_mutex_unlock(&engine->lock);
    return is_found;
}

static void tell_room(struct worker_engine *engine) {
    pthread_mutex_lock(&engine->lock);
    bool is_wanted = engine->wants_room && worker_engine_has_room(engine);
    if (is_wanted) engine->wants_room = false;
    pthread_mutex_unlock(&engine->lock);
    if (is_wanted && engine->events.room) engine->events.room(engine->events.context);
}

static void answer_too_large(struct worker_engine *engine) {
    for (;;) {
        pthread_mutex_lock(&engine->lock);
        bool is_any = engine->too_large_count > 0;
        uint64_t id = is_any ? engine->too_large[--engine->too_large_count] : 0;
        pthread_mutex_unlock(&engine->lock);
        if (!is_any) return;
        struct engine_job job;
        if (!take_job(engine, id, &job)) continue;
        struct buf body;
        buf_init(&body, 4096);
        envelope_write(&body, 413, NULL, NULL, STR("The request body is too large."));
        const struct worker_result result = {.id = id, .status = 413, .body = buf_str(&body)};
        engine->events.result(engine->events.context, &result);
        buf_release(&body);
    }
}

static void note_moved(struct worker_engine *engine) {
    int64_t now_ns = clock_monotonic_ns();
    pthread_mutex_lock(&engine->lock);
    engine->moved_ns = now_ns;
    pthread_mutex_unlock(&engine->lock);
}

static enum err take_ready(struct worker_engine *engine, const struct wire_frame *frame,
                           struct error *error) {
    struct wire_ready ready;
    enum err err = wire_get_ready(frame->payload, &ready, error);
    if (err != OK) return err;
    pthread_mutex_lock(&engine->lock);
    bool is_first = !engine->has_ready;
    bool is_expected = engine->phase == PHASE_LOADING;
    if (is_first && is_expected) {
        buf_add_str(&engine->ready_payload, frame->payload);
        err = wire_get_ready(buf_str(&engine->ready_payload), &engine->ready, error);
        assert(err == OK);
        engine->has_ready = true;
    }
    engine->lacks_card = false;
    engine->idle_ns = clock_monotonic_ns();
    engine->keep_ms = engine->keep_usual_ms;
    engine->had_line = false;
    engine->wants_room = true; /* jobs may have been refused while it loaded */
    pthread_mutex_unlock(&engine->lock);
    if (!is_expected) return err_set(error, ERR_CORRUPT, "a second READY");
    log_info("event=engine_ready pid=%d description=\"%.*s\"", engine->child.pid,
             STR_ARGS(ready.description));
    if (engine->turns) turns_report(engine->turns, engine->member, TURN_LOADED);
    engine->same_failures = 0;
    engine->is_careful = false; /* this child is; whether the next one must be is for its end */
    worker_engine_set_phase(engine, PHASE_READY, NULL);
    return OK;
}

static enum err take_stats(struct worker_engine *engine, const struct wire_frame *frame,
                           struct error *error) {
    struct wire_stats stats;
    enum err err = wire_get_stats(frame->payload, &stats, error);
    if (err != OK) return err;
    pthread_mutex_lock(&engine->lock);
    bool has_moved = stats.steps != engine->stats.steps || engine->job_count == 0 ||
                     stats.completion_tokens != engine->stats.completion_tokens;
    engine->stats = stats;
    if (stats.step_ms_max > engine->step_ms_max) engine->step_ms_max = stats.step_ms_max;
    if (has_moved) engine->moved_ns = clock_monotonic_ns();
    pthread_mutex_unlock(&engine->lock);
    return OK;
}

static enum err take_result(struct worker_engine *engine, const struct wire_frame *frame,
                            struct error *error) {
    struct wire_result from;
    enum err err = wire_get_result(frame->payload, &from, error);
    if (err != OK) return err;
    struct engine_job job;
    if (!take_job(engine, frame->id, &job))
        return err_set(error, ERR_CORRUPT, "a result of job %llu, which it does not have",
                       (unsigned long long)frame->id);
    engine->failures = 0;
    const struct worker_result result = {
        .id = frame->id,
        .outcome =
            job.is_recalled && from.outcome == OUTCOME_CANCELLED ? OUTCOME_RETURNED : from.outcome,
        .status = from.status,
        .body = from.body,
        .usage = from.usage,
        .shape = from.shape,
        .times = from.times,
    };
    engine->events.result(engine->events.context, &result);
    return OK;
}

static enum err take_delta(struct worker_engine *engine, const struct wire_frame *frame,
                           struct error *error) {
    if (!has_job(engine, frame->id))
        return err_set(error, ERR_CORRUPT, "a delta of job %llu, which it does not have",
                       (unsigned long long)frame->id);
    const struct worker_delta delta = {frame->id, frame->payload};
    if (engine->events.delta) engine->events.delta(engine->events.context, &delta);
    return OK;
}

/* An error ends this child; its sentence is the reason. */
static enum err take_frame(struct worker_engine *engine, const struct wire_frame *frame,
                           struct error *error) {
    bool is_ready = engine->phase == PHASE_READY; /* only this thread changes it */
    if (frame->kind == WIRE_FATAL) {
        engine->has_told_fatal = true;
        engine->has_told_no_card = frame->flags & WIRE_FLAG_NO_CARD;
        if (frame->flags & WIRE_FLAG_CARD_FAILED) engine->is_careful = true;
        size_t bytes = frame->payload.bytes < 400 ? frame->payload.bytes : 400;
        return err_set(error, ERR_INVALID, "%.*s", (int)bytes, bytes ? frame->payload.at : "");
    }
    if (frame->kind != WIRE_STATS) note_moved(engine);
    if (frame->kind == WIRE_READY) return take_ready(engine, frame, error);
    if (is_ready) {
        switch (frame->kind) {
        case WIRE_STATS: return take_stats(engine, frame, error);
        case WIRE_RESULT: return take_result(engine, frame, error);
        case WIRE_DELTA: return take_delta(engine, frame, error);
        default: break;
        }
    }
    return err_set(error, ERR_CORRUPT, "a %s frame %s", wire_kind_name(frame->kind),
                   is_ready ? "from an engine" : "before READY");
}

static enum err read_frames(struct worker_engine *engine, struct error *error) {
    size_t room_bytes;
    char *room = wire_reader_room(&engine->reader, &room_bytes);
    ssize_t count = recv(engine->child.fd, room, room_bytes, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return OK;
    if (count <= 0) return err_set(error, ERR_IO, "the engine closed its socket");
    wire_reader_filled(&engine->reader, (size_t)count);
    for (;;) {
        struct wire_frame frame;
        bool found;
        enum err err = wire_reader_next(&engine->reader, &frame, &found, error);
        if (err == OK && found) err = take_frame(engine, &frame, error);
        if (err == ERR_CORRUPT) err_prefix(error, "the engine sent garbage");
        if (err != OK) return err;
        if (!found) break;
    }
    tell_room(engine);
    return OK;
}

/* Takes over the waiting frames and sends what the socket takes. *ret_left: not all was sent. */
static enum err send_frames(struct worker_engine *engine, bool *ret_left, struct error *error) {
    if (engine->sent == engine->sending.bytes) {
        if (engine->sending.capacity > BUFFER_BYTES_KEPT) buf_release(&engine->sending);
        buf_clear(&engine->sending);
        engine->sent = 0;
        pthread_mutex_lock(&engine->lock);
        struct buf full = engine->out;
        engine->out = engine->sending;
        engine->sending = full;
        pthread_mutex_unlock(&engine->lock);
    }
    *ret_left = engine->sent < engine->sending.bytes;
    if (!*ret_left) return OK;
    ssize_t count = send(engine->child.fd, engine->sending.at + engine->sent,
                         engine->sending.bytes - engine->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    /* A child that is gone may have left a FATAL in the socket: read_frames reads it first, and
     * tells the end. */
    const bool is_gone = count < 0 && (errno == EPIPE || errno == ECONNRESET);
    if (count < 0 && errno != EAGAIN && errno != EINTR && !is_gone)
        return err_from_errno(error, errno, "send");
    if (count > 0) engine->sent += (size_t)count;
    if (!is_gone) tell_room(engine);
    return OK;
}

/* The time it may go without a step. The lock is held. */
static int64_t hang_limit_ns(const struct worker_engine *engine) {
    if (engine->hang_ns > 0) return engine->hang_ns;
    bool is_known = engine->ended.steps + engine->stats.steps >= KNOWN_STEPS;
    int64_t least_ns = is_known ? HANG_NS_MIN : HANG_NS_UNKNOWN;
    int64_t limit_ns = engine->step_ms_max * HANG_STEPS * NS_PER_MS;
    return limit_ns > least_ns ? limit_ns : least_ns;
}

/* Pings once per second; an error if the child loads or hangs for too long. */
static enum err watch(struct worker_engine *engine, struct error *error) {
    int64_t now_ns = clock_monotonic_ns(), unseen_ns = now_ns - engine->watched_ns;
    bool is_ping_due = now_ns >= engine->ping_due_ns;
    uint64_t memory_bytes = is_ping_due ? os_rss_bytes(engine->child.pid) : 0;
    engine->watched_ns = now_ns;
    pthread_mutex_lock(&engine->lock);
    if (is_ping_due) engine->memory_bytes = memory_bytes;
    /* While this process was stopped, the child may have done a lot that is not read yet. */
    if (unseen_ns > UNSEEN_NS_MAX) engine->moved_ns += unseen_ns;
    bool is_ready = engine->phase == PHASE_READY;
    int64_t limit_ns = hang_limit_ns(engine), still_ns = now_ns - engine->moved_ns;
    if (is_ping_due && is_ready &&
        engine->out.bytes < WORKER_ENGINE_OUT_BYTES_MAX - WIRE_HEADER_BYTES) {
        wire_write(&engine->out, WIRE_PING, 1, 0, STR(""));
        engine->ping_due_ns = now_ns + PING_PERIOD_NS;
    }
    pthread_mutex_unlock(&engine->lock);
    if (!is_ready && now_ns > engine->load_deadline_ns)
        return err_set(error, ERR_UNAVAILABLE, "the engine did not load its model in %lld s",
                       (long long)(engine->load_ns / 1000000000));
    if (is_ready && still_ns > limit_ns) {
        engine_dump_ask(engine->child.dump_fd, engine->child.pid);
        kill(engine->child.pid, SIGKILL);
        return err_set(error, ERR_UNAVAILABLE, "the engine made no progress for %lld ms",
                       (long long)(still_ns / NS_PER_MS));
    }
    return OK;
}

/* Serves the child until it dies, the worker closes (ERR_CANCELLED), or its turn on the device is
 * over (ERR_CONFLICT). The error says why it ended. */
static enum err serve_child(struct worker_engine *engine, struct error *error) {
    for (;;) {
        if (worker_engine_is_closing(engine)) return err_set(error, ERR_CANCELLED, "closing");
        if (engine_turn_is_over(engine)) return err_set(error, ERR_CONFLICT, "its turn is over");
        bool is_left;
        enum err err = watch(engine, error);
        if (err == OK) err = send_frames(engine, &is_left, error);
        if (err != OK) return err;
        struct pollfd fds[2] = {
            {.fd = engine->child.fd, .events = (short)(POLLIN | (is_left ? POLLOUT : 0))},
            {.fd = engine->wake_fd, .events = POLLIN},
        };
        if (poll(fds, 2, clock_wait_ms(POLL_MS)) < 0 && errno != EINTR)
            return err_from_errno(error, errno, "poll");
        if (fds[1].revents) worker_engine_drain_wakes(engine);
        answer_too_large(engine);
        if (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) {
            err = read_frames(engine, error);
            if (err != OK) return err;
        }
    }
}

/* Ends the child: DRAIN, then SIGKILL. Results that still come are handed on. */
static void close_child(struct worker_engine *engine) {
    int64_t deadline_ns = clock_monotonic_ns() + engine->close_ms * NS_PER_MS;
    pthread_mutex_lock(&engine->lock);
    if (engine->phase == PHASE_READY) wire_write(&engine->out, WIRE_DRAIN, 0, 0, STR(""));
    bool is_ready = engine->phase == PHASE_READY;
    pthread_mutex_unlock(&engine->lock);
    struct error error;
    bool is_left = true;
    while (is_ready && clock_monotonic_ns() < deadline_ns) {
        if (send_frames(engine, &is_left, &error) != OK) break;
        struct pollfd fd = {.fd = engine->child.fd,
                            .events = (short)(POLLIN | (is_left ? POLLOUT : 0))};
        if (poll(&fd, 1, 20) > 0 && fd.revents & (POLLIN | POLLHUP | POLLERR) &&
            read_frames(engine, &error) != OK)
            break;
    }
    bool is_late = clock_monotonic_ns() >= deadline_ns || !is_ready;
    if (is_late) kill(engine->child.pid, SIGKILL);
    char text[96];
    if (!engine_child_end(&engine->child, TERM_PATIENCE_MS, engine->kill_ms, text, sizeof text))
        engine_death_tell_held(engine);
    os_close(engine->child.dump_fd);
    log_info("event=engine_closed end=\"%s\"", text);
}

/* Queues HELLO; the lock is held. After the first READY on a GPU it asks for this GPU, and after
 * an error of the GPU for care. */
static void put_hello(struct worker_engine *engine) {
    struct wire_hello hello;
    struct buf payload;
    enum err err = wire_get_hello(buf_str(&engine->hello), &hello, NULL);
    assert(err == OK);
    if (engine->has_ready && engine->ready.device.bytes > 0)
        hello.device.name = engine->ready.device;
    hello.is_careful = engine->is_careful;
    buf_init(&payload, 1024 * 1024);
    wire_put_hello(&payload, &hello);
    wire_write(&engine->out, WIRE_HELLO, 0, 0, buf_str(&payload));
    buf_release(&payload);
}

static enum err start_child(struct worker_engine *engine, struct error *error) {
    enum err err = engine_child_start(&engine->child, engine->program,
                                      (const char *const *)engine->arguments, error);
    if (err != OK) return err;
    int64_t now_ns = clock_monotonic_ns();
    engine->watched_ns = engine->ping_due_ns = now_ns;
    engine->load_deadline_ns = now_ns + engine->load_ns;
    engine->has_told_fatal = engine->has_told_no_card = false;
    pthread_mutex_lock(&engine->lock);
    engine->moved_ns = now_ns;
    engine->process = engine->child.pid;
    put_hello(engine);
    pthread_mutex_unlock(&engine->lock);
    worker_engine_set_phase(engine, PHASE_LOADING, NULL);
    log_info("event=engine_started pid=%d", engine->child.pid);
    return OK;
}

/* Waits before the next start; false if the worker closes meanwhile. */
static bool back_off(struct worker_engine *engine) {
    uint32_t doublings = engine->failures > 0 ? engine->failures - 1 : 0;
    int64_t delay_ms = engine->restart_delay_ms << (doublings < 10 ? doublings : 10);
    if (delay_ms > WORKER_ENGINE_RESTART_DELAY_MS_MAX)
        delay_ms = WORKER_ENGINE_RESTART_DELAY_MS_MAX;
    int64_t deadline_ns = clock_monotonic_ns() + delay_ms * NS_PER_MS;
    while (!worker_engine_is_closing(engine)) {
        int64_t left_ms = (deadline_ns - clock_monotonic_ns()) / NS_PER_MS;
        if (left_ms <= 0) return true;
        struct pollfd fd = {.fd = engine->wake_fd, .events = POLLIN};
        if (poll(&fd, 1, clock_wait_ms((int)left_ms)) > 0) worker_engine_drain_wakes(engine);
    }
    return false;
}

void *worker_engine_supervise(void *user) {
    struct worker_engine *engine = user;
    struct error error;
    while (!worker_engine_is_closing(engine) && engine_turn_wait(engine)) {
        if (start_child(engine, &error) != OK) {
            log_error("event=engine_not_started reason=\"%s\"", error.text);
            worker_engine_set_phase(engine, PHASE_FAILED, error.text);
            engine_turn_lost(engine);
            if (engine->events.down) engine->events.down(engine->events.context, error.text);
            break;
        }
        enum err err = serve_child(engine, &error);
        if (err == ERR_CANCELLED || err == ERR_CONFLICT) close_child(engine);
        if (err == ERR_CANCELLED) break;
        if (err == ERR_CONFLICT) {
            engine_death_forget(engine);
            if (!engine_death_await(engine)) break;
            engine_turn_end(engine);
            continue;
        }
        engine_death_bury(engine, &error);
        if (!engine_death_await(engine)) break;
        engine_turn_lost(engine);
        if (engine->phase == PHASE_FAILED || !back_off(engine)) break;
        pthread_mutex_lock(&engine->lock);
        engine->restarts++;
        pthread_mutex_unlock(&engine->lock);
    }
    return NULL;
}
