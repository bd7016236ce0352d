/* SPDX-License-Identifier: Apache-2.0 */
#include "../../tree.h"
#include "base/clock.h"
#include "base/os.h"
#include "base/stacks.h"
#include "workers/engine/worker_engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- the child: this program again, called "fake-engine MODE --fd 3", speaking the wire ---- */

struct fake {
    int fd;
    struct wire_reader reader;
    struct buf out;
    bool is_dumb; /* answers no ping */
};

static void fake_send_flagged(struct fake *fake, enum wire_kind kind, uint64_t id, uint8_t flags,
                              struct str payload) {
    buf_clear(&fake->out);
    wire_write(&fake->out, kind, id, flags, payload);
    struct str rest = buf_str(&fake->out);
    while (rest.bytes > 0) {
        ssize_t count = send(fake->fd, rest.at, rest.bytes, MSG_NOSIGNAL);
        if (count <= 0) _exit(9);
        rest = str_skip(rest, (size_t)count);
    }
}

static void fake_send(struct fake *fake, enum wire_kind kind, uint64_t id, struct str payload) {
    fake_send_flagged(fake, kind, id, 0, payload);
}

static struct wire_frame fake_next(struct fake *fake) {
    for (;;) {
        struct wire_frame frame;
        bool found;
        if (wire_reader_next(&fake->reader, &frame, &found, NULL) != OK) _exit(8);
        if (found) return frame;
        size_t room_bytes;
        char *room = wire_reader_room(&fake->reader, &room_bytes);
        ssize_t count = recv(fake->fd, room, room_bytes, 0);
        if (count <= 0) _exit(0);
        wire_reader_filled(&fake->reader, (size_t)count);
    }
}

static void fake_ready(struct fake *fake, const struct wire_hello *hello) {
    struct wire_ready ready = {.version = WIRE_VERSION,
                               .names = hello->names,
                               .context_tokens_max = 4096,
                               .created_unix_s = 17,
                               .generates = true,
                               .description = STR("fake")};
    if (ready.names.count == 0) ready.names = (struct wire_names){{STR("fake")}, 1};
    struct buf payload;
    buf_init(&payload, 10000);
    wire_put_ready(&payload, &ready);
    fake_send(fake, WIRE_READY, 0, buf_str(&payload));
    buf_release(&payload);
}

static void fake_stats(struct fake *fake, uint64_t ping, uint64_t steps) {
    struct buf payload;
    buf_init(&payload, 1000);
    wire_put_stats(&payload, &(struct wire_stats){.steps = steps, .running = 3, .kv_used = 0.5});
    fake_send(fake, WIRE_STATS, ping, buf_str(&payload));
    buf_release(&payload);
}

static void fake_result(struct fake *fake, uint64_t id, int32_t status, struct str body) {
    struct buf payload;
    buf_init(&payload, WIRE_PAYLOAD_BYTES_MAX);
    const struct wire_result result = {.status = status,
                                       .outcome = status == 499 ? OUTCOME_CANCELLED : OUTCOME_DONE,
                                       .usage = {.input_tokens = 5, .output_tokens = 7},
                                       .body = body};
    wire_put_result(&payload, &result);
    fake_send(fake, WIRE_RESULT, id, buf_str(&payload));
    buf_release(&payload);
}

/* What a body asks the fake to do; anything else is answered with itself. */
static void fake_job(struct fake *fake, const struct wire_frame *frame) {
    struct wire_job job;
    if (wire_get_job(frame->payload, &job, NULL) != OK) _exit(7);
    if (str_is(job.body, "crash")) abort();
    if (str_is(job.body, "hang"))
        for (;;) pause();
    if (str_is(job.body, "stall")) fake->is_dumb = true; /* lives, and does nothing */
    if (str_is(job.body, "hold") || fake->is_dumb) return;
    if (str_is(job.body, "garbage")) {
        static const char noise[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        send(fake->fd, noise, sizeof noise, MSG_NOSIGNAL);
        for (;;) pause();
    }
    if (str_is(job.body, "pid")) {
        char text[16];
        snprintf(text, sizeof text, "%d", (int)getpid());
        fake_result(fake, frame->id, 200, str_from(text));
        return;
    }
    if (str_is(job.body, "stranger")) {
        fake_result(fake, frame->id + 1000, 200, STR("{}"));
        return;
    }
    if (job.stream) {
        fake_send(fake, WIRE_DELTA, frame->id, STR("one"));
        fake_send(fake, WIRE_DELTA, frame->id, STR("two"));
    }
    fake_result(fake, frame->id, 200, job.body);
}

/* The model's path is a mark that one of two processes leaves. False if it is there already. */
static bool leave_mark(const char *path) {
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    return fd >= 0 && close(fd) == 0;
}

static void await_mark(const char *path) {
    while (access(path, F_OK) != 0) clock_sleep_ms(1);
}

static int fake_main(const char *mode) {
    struct fake fake = {.fd = 3};
    stacks_open(4);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    wire_reader_init(&fake.reader);
    buf_init(&fake.out, WIRE_PAYLOAD_BYTES_MAX + 100);
    if (strcmp(mode, "die") == 0) return 5;
    struct wire_frame frame = fake_next(&fake);
    struct wire_hello hello;
    if (frame.kind != WIRE_HELLO || wire_get_hello(frame.payload, &hello, NULL) != OK) return 6;
    char path[256];
    snprintf(path, sizeof path, "%.*s", STR_ARGS(hello.model_path));
    if (strcmp(mode, "fatal") == 0) {
        fake_send(&fake, WIRE_FATAL, 0, STR("model.gguf: the file ends inside tensor 'x'"));
        return 3;
    }
    if (strcmp(mode, "once") == 0 && !leave_mark(path)) {
        fake_send(&fake, WIRE_FATAL, 0, STR("model.gguf: it was cut off"));
        return 3;
    }
    if (strcmp(mode, "card") == 0 && access(path, F_OK) == 0) {
        fake_send_flagged(&fake, WIRE_FATAL, 0, WIRE_FLAG_NO_CARD, STR("card 0 is lost"));
        return 3;
    }
    if (strcmp(mode, "slow") == 0) await_mark(path);
    if (strcmp(mode, "never") == 0)
        for (;;) pause();
    fake_ready(&fake, &hello);
    uint64_t steps = 0;
    for (;;) {
        frame = fake_next(&fake);
        switch (frame.kind) {
        case WIRE_JOB: fake_job(&fake, &frame); break;
        case WIRE_CANCEL: fake_result(&fake, frame.id, 499, STR("cancelled")); break;
        case WIRE_PING: fake_stats(&fake, frame.id, fake.is_dumb ? steps : ++steps); break;
        case WIRE_DRAIN: return 0;
        default: return 6;
        }
    }
}

/* ---- the test's side ---- */

struct bench {
    struct worker *worker;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t results, deltas, downs, rooms, returned;
    uint64_t last_id;
    int32_t last_status;
    struct usage last_usage;
    char body[256], chunks[256], reason[512];
};

static void on_delta(void *context, const struct worker_delta *delta) {
    struct bench *bench = context;
    pthread_mutex_lock(&bench->lock);
    bench->deltas++;
    size_t used = strlen(bench->chunks);
    snprintf(bench->chunks + used, sizeof bench->chunks - used, "%.*s;", STR_ARGS(delta->chunk));
    pthread_mutex_unlock(&bench->lock);
}

static void on_result(void *context, const struct worker_result *result) {
    struct bench *bench = context;
    pthread_mutex_lock(&bench->lock);
    bench->results++;
    bench->returned += result->outcome == OUTCOME_RETURNED;
    bench->last_id = result->id;
    bench->last_status = result->status;
    bench->last_usage = result->usage;
    snprintf(bench->body, sizeof bench->body, "%.*s", STR_ARGS(result->body));
    pthread_cond_broadcast(&bench->changed);
    pthread_mutex_unlock(&bench->lock);
}

static void on_down(void *context, const char *reason) {
    struct bench *bench = context;
    pthread_mutex_lock(&bench->lock);
    bench->downs++;
    snprintf(bench->reason, sizeof bench->reason, "%s", reason);
    pthread_cond_broadcast(&bench->changed);
    pthread_mutex_unlock(&bench->lock);
}

static void on_room(void *context) {
    struct bench *bench = context;
    pthread_mutex_lock(&bench->lock);
    bench->rooms++;
    pthread_cond_broadcast(&bench->changed);
    pthread_mutex_unlock(&bench->lock);
}

/* Waits until *counter reaches `value`, a minute at most. */
static void wait_for(struct bench *bench, const uint32_t *counter, uint32_t value) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 60;
    pthread_mutex_lock(&bench->lock);
    int waited = 0;
    while (*counter < value && waited == 0)
        waited = pthread_cond_timedwait(&bench->changed, &bench->lock, &deadline);
    bool is_there = *counter >= value;
    pthread_mutex_unlock(&bench->lock);
    if (!is_there) fail_msg("waited in vain for event number %u", value);
}

/* --- a clock that runs: a second per 10 ms, so that limits of many seconds come at once --- */

struct mover {
    pthread_t thread;
    atomic_bool is_over;
};

static void *mover_main(void *context) {
    struct mover *mover = context;
    while (!atomic_load(&mover->is_over)) {
        clock_move_ms(100);
        clock_sleep_ms(1);
    }
    return NULL;
}

static void mover_start(struct mover *mover) {
    atomic_init(&mover->is_over, false);
    assert_int_equal(pthread_create(&mover->thread, NULL, mover_main, mover), 0);
}

static void mover_stop(struct mover *mover) {
    atomic_store(&mover->is_over, true);
    pthread_join(mover->thread, NULL);
}

/* Waits until it has gone down; time runs if it `hangs`. */
static void wait_down(struct bench *bench, bool hangs) {
    struct mover mover;
    if (hangs) mover_start(&mover);
    wait_for(bench, &bench->downs, 1);
    if (hangs) mover_stop(&mover);
}

#define HANG_MS 20000           /* with a mover a fifth of a second */
#define WAIT_READY_MS 360000000 /* an hour, with a mover */

static enum err bench_open(struct bench *bench, const char *mode,
                           struct worker_engine_options options, struct error *error) {
    *bench = (struct bench){.results = 0};
    pthread_mutex_init(&bench->lock, NULL);
    pthread_cond_init(&bench->changed, NULL);
    const char *const arguments[] = {"fake-engine", mode, NULL};
    if (!options.hello.model_path.at) options.hello.model_path = STR("fake.gguf");
    options.arguments = arguments;
    options.restart_delay_ms = 1;
    const struct worker_events events = {bench, on_delta, on_result, on_down, on_room};
    enum err err = worker_engine_open(&bench->worker, &options, &events, error);
    assert_int_equal(err, OK);
    if (options.turns) return OK; /* it loads when it is wanted */
    return worker_engine_wait_ready(bench->worker, WAIT_READY_MS, error);
}

static void bench_open_good(struct bench *bench, struct worker_engine_options options) {
    struct error error = {0};
    if (bench_open(bench, "good", options, &error) != OK) fail_msg("%s", error.text);
}

static void bench_close(struct bench *bench) {
    bench->worker->ops->close(bench->worker);
    pthread_cond_destroy(&bench->changed);
    pthread_mutex_destroy(&bench->lock);
}

static bool submit(struct bench *bench, const struct worker_job *job) {
    return bench->worker->ops->submit(bench->worker, job);
}

/* The job of a batch's line. */
static struct worker_job line_of(uint64_t id, const char *body) {
    return (struct worker_job){.id = id,
                               .endpoint = ENDPOINT_CHAT,
                               .tier = TIER_BATCH,
                               .is_line = true,
                               .priority = -1,
                               .body = str_from(body)};
}

static bool try_job(struct bench *bench, uint64_t id, bool stream, const char *body) {
    struct worker_job job = line_of(id, body);
    job.stream = stream;
    return submit(bench, &job);
}

/* Submits as a runner does: again after every room event. */
static void give(struct bench *bench, const struct worker_job *job) {
    for (;;) {
        pthread_mutex_lock(&bench->lock);
        uint32_t rooms = bench->rooms;
        pthread_mutex_unlock(&bench->lock);
        if (submit(bench, job)) return;
        wait_for(bench, &bench->rooms, rooms + 1);
    }
}

static void give_job(struct bench *bench, uint64_t id, const char *body) {
    const struct worker_job job = line_of(id, body);
    give(bench, &job);
}

/* The process of the engine, which it tells itself; its result is not counted. */
static int engine_pid(struct bench *bench) {
    uint32_t results = bench->results;
    give_job(bench, 1u << 30, "pid");
    wait_for(bench, &bench->results, results + 1);
    bench->results = results;
    return (int)strtol(bench->body, NULL, 10);
}

static const struct worker_engine_options none;

static void give_request(struct bench *bench, uint64_t id, const char *body) {
    const struct worker_job job = {
        .id = id, .endpoint = ENDPOINT_CHAT, .tier = TIER_DEFAULT, .body = str_from(body)};
    give(bench, &job);
}

static enum { UNLOADED, LOADED, FAILED, MOVING } load_of(struct bench *bench) {
    struct worker_status status;
    bench->worker->ops->status(bench->worker, &status);
    if (status.is_failed) return FAILED;
    return status.is_parked ? UNLOADED : status.ready ? LOADED : MOVING;
}

/* --- engines that share a device --- */

/* Two engines for a device that has room for one. */
static struct turns *open_two(struct bench *a, struct bench *b) {
    struct turns *turns = turns_open(&(struct turns_options){.loaded_max = 1});
    const struct worker_engine_options options = {.turns = turns};
    assert_int_equal(bench_open(a, "good", options, NULL), OK);
    assert_int_equal(bench_open(b, "good", options, NULL), OK);
    return turns;
}

static void close_two(struct bench *a, struct bench *b, struct turns *turns) {
    bench_close(a);
    bench_close(b);
    turns_close(turns);
}

static void engines_of_one_device_take_turns_and_no_job_is_lost(void **state) {
    (void)state;
    struct bench a, b;
    struct turns *turns = open_two(&a, &b);
    assert_int_equal(load_of(&a), UNLOADED);
    for (uint64_t i = 1; i <= 5; i++) {
        give_job(&a, i, "of a");
        give_job(&b, i, "of b");
        wait_for(&a, &a.results, (uint32_t)i);
        wait_for(&b, &b.results, (uint32_t)i);
        assert_true(load_of(&a) != LOADED || load_of(&b) != LOADED);
    }
    assert_string_equal(b.body, "of b");
    assert_int_equal(a.returned + b.returned, 0);
    assert_int_equal(a.downs + b.downs, 0);
    close_two(&a, &b, turns);
}

static void a_single_request_gets_the_device_and_the_lines_come_back_unharmed(void **state) {
    (void)state;
    struct bench a, b;
    struct turns *turns = open_two(&a, &b);
    for (uint64_t i = 1; i <= 20; i++) give_job(&a, i, "hold");
    give_request(&b, 1, "at once");
    wait_for(&b, &b.results, 1);
    assert_string_equal(b.body, "at once");
    wait_for(&a, &a.results, 20);
    assert_int_equal(a.returned, 20);
    assert_int_equal(a.downs, 0);
    give_job(&a, 21, "again");
    wait_for(&a, &a.results, 21);
    assert_int_equal(a.returned, 20);
    close_two(&a, &b, turns);
}

static void an_engine_makes_room_only_when_its_single_requests_are_done(void **state) {
    (void)state;
    struct bench a, b;
    struct turns *turns = open_two(&a, &b);
    give_request(&a, 1, "hold");
    b.worker->ops->want(b.worker, TIER_DEFAULT, 0);
    while (load_of(&a) == LOADED) clock_sleep_ms(1);
    assert_int_equal(load_of(&a), MOVING); /* it takes nothing more, and goes on */
    assert_false(try_job(&a, 2, false, "late"));
    assert_int_equal(load_of(&b), UNLOADED);
    assert_int_equal(a.results, 0);
    a.worker->ops->cancel(a.worker, 1); /* the client hangs up */
    wait_for(&a, &a.results, 1);
    assert_int_equal(a.last_status, 499);
    assert_int_equal(a.returned, 0);
    while (load_of(&b) != LOADED) clock_sleep_ms(1);
    close_two(&a, &b, turns);
}

static void a_model_that_fails_or_dies_does_not_keep_the_device(void **state) {
    (void)state;
    struct error error = {0};
    struct turns *turns = turns_open(&(struct turns_options){.loaded_max = 1});
    struct bench bad, dying, good;
    struct worker_engine_options options = {.turns = turns};
    assert_int_equal(bench_open(&bad, "fatal", options, &error), OK);
    assert_int_equal(bench_open(&dying, "good", options, &error), OK);
    assert_int_equal(bench_open(&good, "good", options, &error), OK);
    assert_false(try_job(&bad, 1, false, "x"));
    while (load_of(&bad) != FAILED) clock_sleep_ms(1);
    give_job(&dying, 1, "crash");
    wait_for(&dying, &dying.downs, 1);
    give_job(&good, 1, "x");
    wait_for(&good, &good.results, 1);
    give_job(&dying, 2, "x");
    wait_for(&dying, &dying.results, 1);
    assert_int_equal(load_of(&bad), FAILED);
    bench_close(&bad);
    bench_close(&dying);
    bench_close(&good);
    turns_close(turns);
}

static void a_job_goes_there_and_its_result_comes_back(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, none);
    give_job(&bench, 7, "hello");
    wait_for(&bench, &bench.results, 1);
    assert_int_equal(bench.last_id, 7);
    assert_int_equal(bench.last_status, 200);
    assert_string_equal(bench.body, "hello");
    assert_int_equal(bench.last_usage.input_tokens, 5);
    assert_int_equal(bench.last_usage.output_tokens, 7);
    bench_close(&bench);
    assert_int_equal(bench.downs, 0);
}

static void deltas_come_in_order_before_the_result(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, none);
    assert_true(try_job(&bench, 1, true, "x"));
    wait_for(&bench, &bench.results, 1);
    assert_string_equal(bench.chunks, "one;two;");
    bench_close(&bench);
}

static void a_cancelled_job_still_has_its_result(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, none);
    give_job(&bench, 1, "hold");
    bench.worker->ops->cancel(bench.worker, 1);
    wait_for(&bench, &bench.results, 1);
    assert_int_equal(bench.last_status, 499);
    bench_close(&bench);
}

static void the_models_are_those_the_engine_names(void **state) {
    (void)state;
    struct worker_engine_options options = {.jobs_max = 4};
    options.hello.names = (struct wire_names){{STR("a"), STR("b")}, 2};
    struct bench bench;
    bench_open_good(&bench, options);
    struct worker_model models[4];
    assert_int_equal(bench.worker->ops->models(bench.worker, models, 4), 2);
    assert_true(str_is(models[1].name, "b"));
    assert_int_equal(models[0].context_tokens_max, 4096);
    assert_int_equal(models[0].created_unix_s, 17);
    assert_true(bench.worker->ops->serves(bench.worker, STR("b")));
    assert_false(bench.worker->ops->serves(bench.worker, STR("fake")));
    bench_close(&bench);
    bench_open_good(&bench, none);
    assert_true(bench.worker->ops->serves(bench.worker, STR("fake")));
    bench_close(&bench);
}

static void it_takes_no_more_jobs_than_its_bound_and_says_when_there_is_room(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, (struct worker_engine_options){.jobs_max = 2});
    give_job(&bench, 1, "hold");
    give_job(&bench, 2, "hold");
    pthread_mutex_lock(&bench.lock);
    uint32_t rooms = bench.rooms;
    pthread_mutex_unlock(&bench.lock);
    assert_false(try_job(&bench, 3, false, "x"));
    bench.worker->ops->cancel(bench.worker, 1);
    wait_for(&bench, &bench.rooms, rooms + 1);
    assert_true(try_job(&bench, 3, false, "x"));
    wait_for(&bench, &bench.results, 2);
    bench_close(&bench);
}

static void many_jobs_all_come_back(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, (struct worker_engine_options){.jobs_max = 64});
    static char large[100000];
    memset(large, 'x', sizeof large - 1);
    for (uint64_t id = 0; id < 500; id++) give_job(&bench, id, large);
    wait_for(&bench, &bench.results, 500);
    bench_close(&bench);
}

/* The whole life: up, struck by `body`, down once with a reason that `says`, up again. */
static void check_recovery(const char *body, struct worker_engine_options options,
                           const char *says) {
    struct bench bench;
    bench_open_good(&bench, options);
    int pid = engine_pid(&bench);
    give_job(&bench, 1, "hold");
    give_job(&bench, 2, body);
    wait_down(&bench, options.hang_ms > 0);
    if (!strstr(bench.reason, says)) fail_msg("the reason is: %s", bench.reason);
    give_job(&bench, 3, "again");
    wait_for(&bench, &bench.results, 1);
    assert_int_equal(bench.last_id, 3);
    assert_string_equal(bench.body, "again");
    struct worker_status status;
    bench.worker->ops->status(bench.worker, &status);
    assert_true(status.ready);
    assert_int_equal(status.restarts, 1);
    assert_int_equal(bench.downs, 1);
    assert_int_not_equal(engine_pid(&bench), pid);
    assert_int_equal(kill(pid, 0), -1); /* gone, and waited for */
    bench_close(&bench);
}

static void a_crash_loses_the_jobs_inside_once_and_the_engine_comes_back(void **state) {
    (void)state;
    check_recovery("crash", none, "signal 6");
}

static void garbage_on_the_socket_is_the_death_of_the_engine(void **state) {
    (void)state;
    check_recovery("garbage", none, "garbage: wire: bad magic");
}

static void a_result_of_a_job_nobody_gave_is_garbage(void **state) {
    (void)state;
    check_recovery("stranger", none, "garbage: a result of job 1002");
}

static void a_hanging_engine_is_killed(void **state) {
    (void)state;
    check_recovery("hang", (struct worker_engine_options){.hang_ms = HANG_MS}, "no progress");
}

static void an_engine_that_answers_pings_but_does_no_work_is_killed(void **state) {
    (void)state;
    check_recovery("stall", (struct worker_engine_options){.hang_ms = HANG_MS}, "no progress");
}

static void a_killed_engine_comes_back(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, none);
    give_job(&bench, 1, "hold");
    kill(engine_pid(&bench), SIGKILL);
    wait_for(&bench, &bench.downs, 1);
    assert_non_null(strstr(bench.reason, "signal 9"));
    give_job(&bench, 2, "x");
    wait_for(&bench, &bench.results, 1);
    bench_close(&bench);
}

static void a_model_that_cannot_load_is_not_tried_again(void **state) {
    (void)state;
    struct bench bench;
    struct error error;
    assert_int_equal(bench_open(&bench, "fatal", none, &error), ERR_INVALID);
    assert_string_equal(error.text, "model.gguf: the file ends inside tensor 'x'");
    struct worker_status status;
    bench.worker->ops->status(bench.worker, &status);
    assert_false(status.ready);
    assert_int_equal(status.restarts, 0);
    assert_non_null(strstr(status.text, "inside tensor 'x'"));
    assert_false(try_job(&bench, 1, false, "x"));
    bench_close(&bench);
}

static void an_engine_that_dies_while_loading_is_given_up(void **state) {
    (void)state;
    struct bench bench;
    struct error error;
    assert_int_equal(bench_open(&bench, "die", none, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "exited with status 5"));
    bench_close(&bench);
}

/* Not at once: the file may be in the middle of being replaced. */
static void a_model_that_cannot_be_loaded_again_is_given_up_after_some_tries(void **state) {
    (void)state;
    struct bench bench;
    struct error error;
    char mark[64];
    snprintf(mark, sizeof mark, "/tmp/quern-once-%d", (int)getpid());
    const struct worker_engine_options options = {.hello.model_path = str_from(mark)};
    assert_int_equal(bench_open(&bench, "once", options, &error), OK);
    give_job(&bench, 1, "x");
    wait_for(&bench, &bench.results, 1);
    give_job(&bench, 2, "crash");
    while (load_of(&bench) != FAILED) clock_sleep_ms(1);
    wait_for(&bench, &bench.downs, 1 + WORKER_ENGINE_RELOADS_MAX);
    assert_int_equal(bench.downs, 1 + WORKER_ENGINE_RELOADS_MAX);
    assert_string_equal(bench.reason, "model.gguf: it was cut off");
    assert_false(try_job(&bench, 3, false, "x"));
    bench_close(&bench);
    assert_int_equal(unlink(mark), 0);
}

/* The file stands for the loss. `other` shares the device and has never been ready. */
static void a_card_that_is_lost_is_waited_for(void **state) {
    (void)state;
    struct bench bench, other;
    struct worker_status status;
    char lost[64];
    snprintf(lost, sizeof lost, "/tmp/quern-lost-%d", (int)getpid());
    struct turns *turns = turns_open(&(struct turns_options){.loaded_max = 2});
    const struct worker_engine_options options = {.hello.model_path = str_from(lost),
                                                  .turns = turns};
    assert_int_equal(bench_open(&bench, "card", options, NULL), OK);
    assert_int_equal(bench_open(&other, "card", options, NULL), OK);
    give_job(&bench, 1, "x");
    wait_for(&bench, &bench.results, 1);
    assert_true(leave_mark(lost));
    give_job(&bench, 2, "crash");
    assert_false(try_job(&other, 3, false, "x"));
    wait_for(&bench, &bench.downs, 1 + WORKER_ENGINE_RELOADS_MAX + 2);
    wait_for(&other, &other.downs, WORKER_ENGINE_LOADS_MAX + 2);
    assert_int_equal(load_of(&bench), MOVING);
    assert_int_equal(load_of(&other), MOVING);
    bench.worker->ops->status(bench.worker, &status);
    assert_string_equal(status.text, "waiting for its card: card 0 is lost");
    assert_false(status.is_failed || status.ready);
    assert_int_equal(unlink(lost), 0);
    give_job(&bench, 4, "y");
    give_job(&other, 5, "z");
    wait_for(&bench, &bench.results, 2);
    wait_for(&other, &other.results, 1);
    assert_string_equal(bench.body, "y");
    bench.worker->ops->status(bench.worker, &status);
    assert_string_equal(status.text, "ready");
    bench_close(&bench);
    bench_close(&other);
    turns_close(turns);
}

/* The only file in the directory of stacks. */
static char *read_stacks(const char *dir) {
    char path[400] = "", *text;
    struct error error;
    size_t bytes;
    DIR *directory = opendir(dir);
    assert_non_null(directory);
    for (const struct dirent *at; (at = readdir(directory));) {
        if (at->d_name[0] == '.') continue;
        assert_string_equal(path, "");
        snprintf(path, sizeof path, "%s/%s", dir, at->d_name);
    }
    closedir(directory);
    assert_int_equal(os_read_file(path, 1 << 20, &text, &bytes, &error), OK);
    return text;
}

static void the_stacks_of_an_engine_that_hung_or_crashed_are_kept(void **state) {
    (void)state;
    static const char *const bodies[] = {"hang", "crash"};
    for (size_t i = 0; i < 1 + STACKS_OF_CRASHES; i++) {
        char dir[] = "/tmp/quern-stacks-XXXXXX", dumps[64];
        assert_non_null(mkdtemp(dir));
        snprintf(dumps, sizeof dumps, "%s/dumps", dir);
        struct bench bench;
        assert_int_equal(
            bench_open(&bench, "serve",
                       (struct worker_engine_options){.hang_ms = HANG_MS, .dump_dir = dumps}, NULL),
            OK);
        give_job(&bench, 1, bodies[i]);
        wait_down(&bench, i == 0);
        char *text = read_stacks(dumps);
        assert_non_null(strstr(text, "thread "));
        assert_non_null(strstr(text, "(+0x"));
        assert_non_null(strstr(text, "\n" STACKS_END));
        free(text);
        bench_close(&bench);
        tree_remove(dir);
    }
}

static void a_program_that_is_not_there_is_an_error_of_the_worker(void **state) {
    (void)state;
    struct worker *worker;
    struct worker_engine_options options = {.program = "/nonexistent/quern"};
    const struct worker_events events = {.context = NULL};
    struct error error;
    assert_int_equal(worker_engine_open(&worker, &options, &events, &error), OK);
    assert_int_equal(worker_engine_wait_ready(worker, 60000, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "/nonexistent/quern"));
    worker->ops->close(worker);
}

static void a_slow_start_is_seen_as_loading(void **state) {
    (void)state;
    struct bench bench = {.results = 0};
    pthread_mutex_init(&bench.lock, NULL);
    pthread_cond_init(&bench.changed, NULL);
    const char *const arguments[] = {"fake-engine", "slow", NULL};
    char mark[64];
    snprintf(mark, sizeof mark, "/tmp/quern-slow-%d", (int)getpid());
    const struct worker_engine_options options = {.hello.model_path = str_from(mark),
                                                  .arguments = arguments};
    const struct worker_events events = {&bench, on_delta, on_result, on_down, on_room};
    assert_int_equal(worker_engine_open(&bench.worker, &options, &events, NULL), OK);
    struct worker_status status;
    bench.worker->ops->status(bench.worker, &status);
    assert_false(status.ready);
    assert_string_equal(status.text, "loading");
    assert_false(try_job(&bench, 1, false, "x"));
    struct error error;
    assert_int_equal(worker_engine_wait_ready(bench.worker, 1, &error), ERR_UNAVAILABLE);
    assert_true(leave_mark(mark));
    wait_for(&bench, &bench.rooms, 1); /* the worker has become ready */
    assert_int_equal(unlink(mark), 0);
    assert_true(try_job(&bench, 1, false, "x"));
    wait_for(&bench, &bench.results, 1);
    bench_close(&bench);
}

static void a_load_without_an_end_is_given_up(void **state) {
    (void)state;
    struct bench bench;
    struct error error;
    struct mover mover;
    mover_start(&mover);
    assert_int_equal(
        bench_open(&bench, "never", (struct worker_engine_options){.load_ms = 3000}, &error),
        ERR_INVALID);
    mover_stop(&mover);
    assert_non_null(strstr(error.text, "did not load"));
    bench_close(&bench);
}

static void closing_leaves_no_process_behind_even_one_that_hangs(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, (struct worker_engine_options){.close_ms = 100});
    int pid = engine_pid(&bench);
    give_job(&bench, 1, "hang");
    bench_close(&bench);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
}

static void a_child_sees_no_secret_and_no_other_descriptor(void **state) {
    (void)state;
    setenv("QUERN_TEST_SECRET", "s3cret", 1);
    int extra = fcntl(2, F_DUPFD, 20);
    struct bench bench;
    bench_open_good(&bench, none);
    char path[64], environment[65536];
    snprintf(path, sizeof path, "/proc/%d/environ", engine_pid(&bench));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t count = fread(environment, 1, sizeof environment, file);
    fclose(file);
    assert_null(memmem(environment, count, "s3cret", 6));
    snprintf(path, sizeof path, "/proc/%d/fd/%d", engine_pid(&bench), extra);
    char target[256];
    assert_int_equal(readlink(path, target, sizeof target), -1);
    bench_close(&bench);
    close(extra);
    unsetenv("QUERN_TEST_SECRET");
}

int main(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "fake-engine") == 0) _exit(fake_main(argv[i + 1]));
    clock_make_movable();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_goes_there_and_its_result_comes_back),
        cmocka_unit_test(deltas_come_in_order_before_the_result),
        cmocka_unit_test(a_cancelled_job_still_has_its_result),
        cmocka_unit_test(the_models_are_those_the_engine_names),
        cmocka_unit_test(it_takes_no_more_jobs_than_its_bound_and_says_when_there_is_room),
        cmocka_unit_test(many_jobs_all_come_back),
        cmocka_unit_test(a_crash_loses_the_jobs_inside_once_and_the_engine_comes_back),
        cmocka_unit_test(garbage_on_the_socket_is_the_death_of_the_engine),
        cmocka_unit_test(a_result_of_a_job_nobody_gave_is_garbage),
        cmocka_unit_test(a_hanging_engine_is_killed),
        cmocka_unit_test(an_engine_that_answers_pings_but_does_no_work_is_killed),
        cmocka_unit_test(a_killed_engine_comes_back),
        cmocka_unit_test(a_model_that_cannot_load_is_not_tried_again),
        cmocka_unit_test(an_engine_that_dies_while_loading_is_given_up),
        cmocka_unit_test(a_model_that_cannot_be_loaded_again_is_given_up_after_some_tries),
        cmocka_unit_test(a_card_that_is_lost_is_waited_for),
        cmocka_unit_test(a_program_that_is_not_there_is_an_error_of_the_worker),
        cmocka_unit_test(a_slow_start_is_seen_as_loading),
        cmocka_unit_test(a_load_without_an_end_is_given_up),
        cmocka_unit_test(closing_leaves_no_process_behind_even_one_that_hangs),
        cmocka_unit_test(the_stacks_of_an_engine_that_hung_or_crashed_are_kept),
        cmocka_unit_test(engines_of_one_device_take_turns_and_no_job_is_lost),
        cmocka_unit_test(a_single_request_gets_the_device_and_the_lines_come_back_unharmed),
        cmocka_unit_test(an_engine_makes_room_only_when_its_single_requests_are_done),
        cmocka_unit_test(a_model_that_fails_or_dies_does_not_keep_the_device),
        cmocka_unit_test(a_child_sees_no_secret_and_no_other_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
