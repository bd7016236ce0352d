/* SPDX-License-Identifier: Apache-2.0 */

/* In which order lines reach a worker, and what becomes of batches whose worker does not get on. */

#include "pipeline.h"

#include "base/log.h"
#include "runner/runner_internal.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- a worker that notes what it is given and answers when it is told to ---- */

#define JOBS_MAX 4096

struct noted {
    uint64_t id;
    int32_t priority;
    enum tier tier;
    int64_t deadline_unix_s;
    char mark[16]; /* the first word of the message */
};

struct recorder {
    struct worker worker;
    struct worker_events events;
    pthread_mutex_t lock;
    struct noted jobs[JOBS_MAX];
    size_t count, answered, in_flight_max, in_flight_peak;
    bool was_full, is_closed;
    bool is_deaf;           /* hears no cancel */
    bool falls_first;       /* tells once that it went down while it takes a job */
    uint64_t cancelled;     /* the last job that it was to end */
    atomic_bool is_loading; /* may come to serve more */
};

static bool recorder_submit(struct worker *worker, const struct worker_job *job) {
    struct recorder *recorder = (struct recorder *)worker;
    static const char mark[] = "\"content\":\"";
    bool falls = recorder->falls_first;
    recorder->falls_first = false;
    if (falls) recorder->events.down(recorder->events.context, "it went down first");
    pthread_mutex_lock(&recorder->lock);
    bool takes = recorder->count < JOBS_MAX &&
                 recorder->count - recorder->answered < recorder->in_flight_max;
    if (takes) {
        struct noted *noted = &recorder->jobs[recorder->count++];
        *noted = (struct noted){job->id, job->priority, job->tier, job->deadline_unix_s, ""};
        const char *text = memmem(job->body.at, job->body.bytes, mark, sizeof mark - 1);
        if (text) sscanf(text + sizeof mark - 1, "%15[^ \"]", noted->mark);
        if (recorder->count - recorder->answered > recorder->in_flight_peak)
            recorder->in_flight_peak = recorder->count - recorder->answered;
    } else {
        recorder->was_full = true;
    }
    pthread_mutex_unlock(&recorder->lock);
    return takes;
}

static void recorder_answer_one(struct recorder *recorder, size_t at, int32_t status) {
    const struct worker_result result = {.id = recorder->jobs[at].id,
                                         .status = status,
                                         .body = STR("{}"),
                                         .usage = {.input_tokens = 10}};
    recorder->events.result(recorder->events.context, &result);
}

/* Answers the oldest ones. */
static void recorder_answer(struct recorder *recorder, size_t count) {
    for (size_t i = 0; i < count; i++) {
        pthread_mutex_lock(&recorder->lock);
        size_t at = recorder->answered++;
        pthread_mutex_unlock(&recorder->lock);
        recorder_answer_one(recorder, at, 200);
    }
    recorder->events.room(recorder->events.context);
}

static void recorder_cancel(struct worker *worker, uint64_t job_id) {
    struct recorder *recorder = (struct recorder *)worker;
    recorder->cancelled = job_id;
    if (recorder->is_deaf) return;
    const struct worker_result result = {
        .id = job_id, .outcome = OUTCOME_CANCELLED, .status = 499, .body = STR("{}")};
    recorder->events.result(recorder->events.context, &result);
}

static bool recorder_serves(struct worker *worker, struct str model) {
    (void)worker;
    return !str_starts_with(model, STR("absent")); /* which may be asked for with a tag */
}

static size_t recorder_models(struct worker *worker, struct worker_model *ret_models,
                              size_t models_max) {
    (void)worker;
    if (models_max > 0) ret_models[0] = (struct worker_model){.name = STR("m")};
    return models_max > 0;
}

static void recorder_status(struct worker *worker, struct worker_status *ret_status) {
    struct recorder *recorder = (struct recorder *)worker;
    *ret_status = (struct worker_status){
        .ready = !recorder->is_loading, .knows_names = !recorder->is_loading, .text = "loading"};
}

static void recorder_close(struct worker *worker) {
    struct recorder *recorder = (struct recorder *)worker;
    recorder->is_closed = true;
    pthread_mutex_destroy(&recorder->lock);
}

static const struct worker_ops recorder_ops = {.submit = recorder_submit,
                                               .cancel = recorder_cancel,
                                               .serves = recorder_serves,
                                               .models = recorder_models,
                                               .status = recorder_status,
                                               .close = recorder_close};

static void open_with(struct pipeline *p, struct recorder *recorder, size_t in_flight_max,
                      struct runner_options options) {
    struct error error;
    uint32_t seat;
    *recorder = (struct recorder){.worker.ops = &recorder_ops, .in_flight_max = in_flight_max};
    pthread_mutex_init(&recorder->lock, NULL);
    pipeline_dir(p);
    pipeline_open_store(p);
    options.now_unix_s = test_now;
    must(runner_open(&p->runner, p->store, &options, &error));
    if (!runner_worker_seat(p->runner, &recorder->events, &seat)) abort();
    runner_worker_attach(p->runner, seat, &recorder->worker);
    must(runner_start(p->runner, &error));
}

static void close_with(struct pipeline *p) {
    pipeline_close(p);
    assert_int_equal(pipeline_fsck(p), 0);
    pipeline_remove(p);
}

static size_t count_of(struct recorder *recorder) {
    pthread_mutex_lock(&recorder->lock);
    size_t count = recorder->count;
    pthread_mutex_unlock(&recorder->lock);
    return count;
}

static void wait_count(struct recorder *recorder, size_t count) {
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    while (count_of(recorder) < count && test_real_ns() < until_ns) usleep(500);
    assert_int_equal(count_of(recorder), count);
}

/* Answers everything until the batch has ended. */
static struct store_batch answer_all(struct pipeline *p, struct recorder *recorder,
                                     const char *id) {
    struct error error;
    struct store_batch batch;
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    for (;;) {
        recorder_answer(recorder, count_of(recorder) - recorder->answered);
        must(runner_batch_get(p->runner, str_from(id), &batch, &error));
        if (is_over(&batch)) return batch;
        assert_true(test_real_ns() < until_ns);
        store_batch_release(&batch);
        usleep(200);
    }
}

static void create(struct pipeline *p, struct str text, int32_t priority, const char *tier,
                   char ret_id[STORE_ID_BYTES]) {
    struct error error;
    char file_id[STORE_ID_BYTES];
    pipeline_upload(p, text, "batch", file_id);
    struct batch_parameters parameters = {.endpoint = ENDPOINT_CHAT,
                                          .completion_window = "24h",
                                          .window_s = 86400,
                                          .priority = priority};
    memcpy(parameters.input_file_id, file_id, sizeof file_id);
    snprintf(parameters.service_tier, sizeof parameters.service_tier, "%s", tier);
    struct store_batch batch;
    bool existing;
    must(batch_create(p->store, &parameters, test_now(), &batch, &existing, &error));
    memcpy(ret_id, batch.id, STORE_ID_BYTES);
    store_batch_release(&batch);
    runner_kick(p->runner, ret_id);
}

static void create_lines(struct pipeline *p, const char *salt, unsigned count, int32_t priority,
                         const char *tier, char ret_id[STORE_ID_BYTES]) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    add_chat_lines(&text, salt, count);
    create(p, buf_str(&text), priority, tier, ret_id);
    buf_release(&text);
    struct store_batch batch = pipeline_wait(p, ret_id, is_running);
    store_batch_release(&batch);
}

static void end(struct pipeline *p, struct recorder *recorder, const char *id) {
    struct store_batch batch = answer_all(p, recorder, id);
    assert_int_equal(batch.status, BATCH_COMPLETED);
    store_batch_release(&batch);
}

/* The writer of results has ended by then. */
static void a_worker_that_comes_to_a_halted_runner_is_closed_at_once(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r, late = {.worker.ops = &recorder_ops};
    uint32_t seat;
    open_with(&p, &r, 8, (struct runner_options){0});
    pthread_mutex_init(&late.lock, NULL);
    assert_true(runner_worker_seat(p.runner, &late.events, &seat));
    runner_halt(p.runner);
    assert_true(r.is_closed && !late.is_closed);
    runner_worker_attach(p.runner, seat, &late.worker);
    assert_true(late.is_closed);
    close_with(&p);
}

/* ---- the order ---- */

static void a_batch_of_priority_minus_one_behind_zeros_starts_first(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r;
    char zeros[STORE_ID_BYTES], minus[STORE_ID_BYTES];
    open_with(&p, &r, 8, (struct runner_options){0});
    create_lines(&p, "zero", 100, 0, "", zeros);
    wait_count(&r, 8);
    create_lines(&p, "minus", 8, -1, "", minus);
    recorder_answer(&r, 8);
    wait_count(&r, 16);
    /* The dispatch thread may have had a line in its hand before the batch came. */
    const bool has_one = strcmp(r.jobs[8].mark, "minus") != 0;
    for (size_t i = 8 + has_one; i < 16; i++) {
        assert_string_equal(r.jobs[i].mark, "minus");
        assert_int_equal(r.jobs[i].priority, -1);
        assert_int_equal(r.jobs[i].tier, TIER_BATCH);
        assert_int_equal(r.jobs[i].deadline_unix_s, test_now() + 86400);
    }
    end(&p, &r, minus);
    end(&p, &r, zeros);
    close_with(&p);
}

static void the_service_tier_of_a_batch_comes_before_its_priority(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r;
    static const char *const tiers[] = {"auto", "flex", "default", "priority"};
    static const enum tier expected[] = {TIER_BATCH, TIER_FLEX, TIER_DEFAULT, TIER_PRIORITY};
    char ids[5][STORE_ID_BYTES];
    open_with(&p, &r, 1, (struct runner_options){0});
    create_lines(&p, "first", 1, -100, "", ids[4]);
    wait_count(&r, 1);
    for (int i = 0; i < 4; i++) create_lines(&p, tiers[i], 2, i, tiers[i], ids[i]);
    int before = 3;
    for (size_t i = 1; i <= 8; i++) {
        int rank = 0;
        recorder_answer(&r, 1);
        wait_count(&r, 1 + i);
        while (rank < 3 && strcmp(tiers[rank], r.jobs[i].mark) != 0) rank++;
        assert_string_equal(r.jobs[i].mark, tiers[rank]);
        assert_int_equal(r.jobs[i].tier, expected[rank]);
        if (i == 1) continue; /* may have been in the dispatch thread's hand since before */
        assert_true(rank <= before);
        before = rank;
    }
    assert_string_equal(r.jobs[2].mark, "priority");
    for (int i = 0; i < 5; i++) end(&p, &r, ids[i]);
    close_with(&p);
}

static void a_small_batch_beside_a_big_one_ends_soon(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r;
    char big[STORE_ID_BYTES], small[STORE_ID_BYTES];
    open_with(&p, &r, 16, (struct runner_options){0});
    create_lines(&p, "big", 3000, 0, "", big);
    while (count_of(&r) < 300) {
        recorder_answer(&r, count_of(&r) - r.answered);
        usleep(200);
    }
    create_lines(&p, "small", 100, 0, "", small);
    size_t before = count_of(&r);
    end(&p, &r, small);
    /* Only up to the last line of the small one: its files are written while the big one goes on.
     */
    size_t others = 0, since = 0;
    for (size_t i = before; i < count_of(&r); i++) {
        bool is_big = strcmp(r.jobs[i].mark, "big") == 0;
        since += is_big;
        if (is_big) continue;
        others += since;
        since = 0;
    }
    print_message("# %zu lines of the big one between those of the small one\n", others);
    assert_in_range(others, 0, 300); /* they take turns; 241 in 7 of 7 runs, busy or not */
    end(&p, &r, big);
    close_with(&p);
}

/* `count` lines that begin with the same 1,100 bytes. */
static void add_group(struct buf *buf, const char *salt, char group, unsigned count) {
    char beginning[1101];
    memset(beginning, group, sizeof beginning - 1);
    beginning[sizeof beginning - 1] = '\0';
    for (unsigned i = 0; i < count; i++)
        buf_printf(buf,
                   "{\"custom_id\":\"%s-%c-%u\",\"method\":\"POST\",\"url\":"
                   "\"/v1/chat/completions\",\"body\":{\"model\":\"m\",\"messages\":[{\"role\":"
                   "\"user\",\"content\":\"%c %s %u\"}]}}\n",
                   salt, group, i, group, beginning, i);
}

static void batches_that_share_a_beginning_run_it_one_after_the_other(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r;
    char first[STORE_ID_BYTES], second[STORE_ID_BYTES];
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    open_with(&p, &r, 128, (struct runner_options){0});
    add_group(&text, "a", 'P', 64);
    add_group(&text, "a", 'Q', 64);
    create(&p, buf_str(&text), 0, "", first);
    wait_count(&r, 128);
    buf_clear(&text);
    /* P and R come before Q, but Q is what the first batch ran last. */
    add_group(&text, "b", 'P', 64);
    add_group(&text, "b", 'R', 64);
    add_group(&text, "b", 'Q', 64);
    create(&p, buf_str(&text), 0, "", second);
    buf_release(&text);
    end(&p, &r, second);
    static const char *const expected[] = {"P", "Q", "Q", "P", "R"};
    assert_int_equal(r.count, 5 * 64);
    for (size_t i = 0; i < r.count; i++) assert_string_equal(r.jobs[i].mark, expected[i / 64]);
    close_with(&p);
}

/* ---- culprits ---- */

/* What it was given is never answered; from now on it takes so many at a time. */
static void recorder_forget(struct recorder *recorder, size_t in_flight_max) {
    pthread_mutex_lock(&recorder->lock);
    recorder->answered = recorder->count;
    recorder->in_flight_max = in_flight_max;
    recorder->in_flight_peak = 0;
    pthread_mutex_unlock(&recorder->lock);
}

static size_t peak_of(struct recorder *recorder) {
    pthread_mutex_lock(&recorder->lock);
    size_t peak = recorder->in_flight_peak;
    pthread_mutex_unlock(&recorder->lock);
    return peak;
}

static void after_a_crash_half_of_the_lines_run_also_when_loading_crashes_too(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r;
    char id[STORE_ID_BYTES];
    open_with(&p, &r, 8, (struct runner_options){.lookahead_lines = 8});
    create_lines(&p, "x", 20, 0, "", id);
    wait_count(&r, 8);
    recorder_forget(&r, 0);
    r.events.down(r.events.context, "crashed");
    r.events.down(r.events.context, "crashed while it loaded");
    recorder_forget(&r, 8);
    r.events.room(r.events.context);
    wait_count(&r, 12);
    recorder_answer(&r, 4);
    wait_count(&r, 16); /* the other half */
    assert_int_equal(peak_of(&r), 4);
    recorder_answer(&r, 4);
    wait_count(&r, 24); /* and then everybody */
    end(&p, &r, id);
    close_with(&p);
}

static void many_culprits_are_found_and_no_innocent_line_gets_an_error(void **state) {
    (void)state;
    enum { LINES = 400 };
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    struct buf text;
    static const unsigned culprits[] = {0, 1, 77, 200, 201, 399};
    buf_init(&text, BUF_UNLIMITED);
    for (unsigned i = 0; i < LINES; i++) {
        bool is_culprit = false;
        for (size_t k = 0; k < sizeof culprits / sizeof *culprits; k++)
            is_culprit |= culprits[k] == i;
        buf_printf(&text,
                   "{\"custom_id\":\"c-%u-\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
                   "\"body\":{\"model\":\"m\",\"echo\":{\"down\":%s},\"messages\":[]}}\n",
                   i, is_culprit ? "true" : "false");
    }
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 128},
                  &(struct worker_echo_options){.down_ms = 1}, 1);
    create(&p, buf_str(&text), 0, "", id);
    buf_release(&text);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.completed, LINES - 6);
    assert_int_equal(batch.failed, 6);
    size_t bytes;
    char *errors = pipeline_read(&p, batch.error_file_id, &bytes);
    for (size_t k = 0; k < sizeof culprits / sizeof *culprits; k++) {
        char wanted[32];
        snprintf(wanted, sizeof wanted, "\"c-%u-\"", culprits[k]);
        assert_non_null(strstr(errors, wanted));
    }
    free(errors);
    store_batch_release(&batch);
    close_with(&p);
}

struct sender {
    struct runner *runner;
    atomic_int sent, ended;
};

static void on_sent_result(void *context, const struct worker_result *result) {
    struct sender *sender = context;
    (void)result;
    sender->ended++;
}

/* Requests of clients beside it do not hide the culprit. */
static void a_culprit_is_found_while_single_requests_keep_coming(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 64},
                  &(struct worker_echo_options){.poison = "p 13 ", .down_ms = 1, .latency_ms = 1},
                  1);
    struct sender sender = {.runner = p.runner};
    pipeline_submit(&p, "p", 100, id);
    struct store_batch batch;
    for (bool over = false; !over;) {
        struct error error;
        uint64_t request_id;
        const struct runner_request call = {.endpoint = ENDPOINT_CHAT,
                                            .tier = TIER_DEFAULT,
                                            .model = STR("m"),
                                            .body = STR("{\"model\":\"m\",\"messages\":[]}")};
        const struct runner_request_events events = {.context = &sender, .result = on_sent_result};
        sender.sent += runner_request(p.runner, &call, &events, &request_id, &error) == OK;
        must(runner_batch_get(p.runner, str_from(id), &batch, &error));
        over = is_over(&batch);
        if (!over) store_batch_release(&batch);
        usleep(300);
    }
    assert_int_equal(batch.completed, 99);
    assert_int_equal(batch.failed, 1);
    store_batch_release(&batch);
    close_with(&p);
    assert_int_equal(sender.sent, sender.ended);
}

/* ---- standing still ---- */

static void a_batch_that_waits_for_its_model_holds_up_no_other(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r;
    struct error error;
    char early[STORE_ID_BYTES], ids[3][STORE_ID_BYTES];
    open_with(&p, &r, 4, (struct runner_options){.stuck_ms = 50});
    r.is_loading = true;
    create(&p,
           STR("{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":"
               "{\"model\":\"absent\",\"messages\":[]}}\n"),
           -1, "", early);
    for (int i = 0; i < 3; i++) create_lines(&p, "other", 3, 0, "", ids[i]);
    for (int i = 0; i < 3; i++) end(&p, &r, ids[i]);
    struct store_batch batch;
    must(runner_batch_get(p.runner, str_from(early), &batch, &error));
    assert_int_equal(batch.status, BATCH_VALIDATING);
    store_batch_release(&batch);
    r.is_loading = false; /* all that it serves is known now */
    batch = pipeline_wait(&p, early, is_over);
    assert_int_equal(batch.status, BATCH_FAILED);
    assert_non_null(strstr(batch.errors, "model_not_found"));
    store_batch_release(&batch);
    close_with(&p);
}

#define STUCK_MS INT64_C(3600000)

struct heard {
    pthread_mutex_t lock;
    int stuck, at_risk, down;
    char batch_id[STORE_ID_BYTES];
    char text[200];
};

static void on_event(void *context, const struct runner_event *event) {
    struct heard *heard = context;
    pthread_mutex_lock(&heard->lock);
    heard->stuck += event->kind == RUNNER_BATCH_STUCK;
    heard->at_risk += event->kind == RUNNER_BATCH_AT_RISK;
    heard->down += event->kind == RUNNER_ENGINE_DOWN;
    if (event->batch_id) snprintf(heard->batch_id, STORE_ID_BYTES, "%s", event->batch_id);
    snprintf(heard->text, sizeof heard->text, "%s", event->text);
    pthread_mutex_unlock(&heard->lock);
}

static int stuck_of(struct heard *heard) {
    pthread_mutex_lock(&heard->lock);
    int stuck = heard->stuck;
    pthread_mutex_unlock(&heard->lock);
    return stuck;
}

/* Lets time pass until so many reports have come. */
static void wait_stuck(struct heard *heard, int count) {
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    while (stuck_of(heard) < count && test_real_ns() < until_ns) {
        clock_move_ms(STUCK_MS / 20);
        usleep(1000);
    }
    assert_true(stuck_of(heard) >= count);
}

static bool waits_for_something(const struct store_batch *batch) {
    return *batch->waiting_for != '\0';
}

static void
a_batch_that_stands_still_is_told_with_what_it_waits_for_and_can_be_cancelled(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r;
    char id[STORE_ID_BYTES];
    struct error error;
    struct heard heard = {.lock = PTHREAD_MUTEX_INITIALIZER};
    open_with(&p, &r, 3,
              (struct runner_options){.stuck_ms = STUCK_MS,
                                      .cancel_deadline_ms = 5000,
                                      .events = {.context = &heard, .event = on_event}});
    r.is_deaf = true;
    create_lines(&p, "still", 10, 0, "", id);
    wait_count(&r, 3);
    wait_stuck(&heard, 1);
    assert_string_equal(heard.batch_id, id);
    assert_string_equal(heard.text, "It waits for results of 3 requests that are with an engine.");
    struct store_batch batch;
    must(runner_batch_get(p.runner, str_from(id), &batch, &error));
    assert_string_equal(batch.waiting_for, "results of 3 requests that are with an engine");
    store_batch_release(&batch);
    struct runner_progress *progress = malloc(sizeof *progress);
    if (!progress) abort();
    runner_progress(p.runner, progress);
    assert_int_equal(progress->batches_stuck, 1);
    assert_int_equal(progress->queue_count, 1);
    assert_string_equal(progress->queues[0].model, "m");
    assert_int_equal(progress->queues[0].lines, 10);
    assert_true(progress->has_deadline && progress->deadline_s_min == 86400);
    free(progress);
    wait_stuck(&heard, 2); /* and again, later */
    /* The worker neither answers nor hears the cancel. */
    must(runner_batch_cancel(p.runner, str_from(id), &batch, &error));
    store_batch_release(&batch);
    batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.status, BATCH_CANCELLED);
    store_batch_release(&batch);
    close_with(&p);
}

static void a_batch_behind_another_waits_for_its_turn_and_is_not_stuck(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r;
    char first[STORE_ID_BYTES], second[STORE_ID_BYTES];
    struct error error;
    struct heard heard = {.lock = PTHREAD_MUTEX_INITIALIZER};
    open_with(&p, &r, 2,
              (struct runner_options){.stuck_ms = STUCK_MS,
                                      .events = {.context = &heard, .event = on_event}});
    create_lines(&p, "first", 100, 0, "", first);
    wait_count(&r, 2);
    create_lines(&p, "second", 5, 1, "", second);
    struct store_batch batch = pipeline_wait(&p, second, is_running);
    store_batch_release(&batch);
    wait_stuck(&heard, 1);
    assert_string_equal(heard.batch_id, first);
    batch = pipeline_wait(&p, second, waits_for_something);
    assert_string_equal(batch.waiting_for, "its turn");
    store_batch_release(&batch);
    end(&p, &r, first);
    end(&p, &r, second);
    must(runner_batch_get(p.runner, str_from(second), &batch, &error));
    assert_string_equal(batch.waiting_for, "");
    store_batch_release(&batch);
    close_with(&p);
}

static bool waits_for_its_turn(const struct store_batch *batch) {
    return strcmp(batch->waiting_for, "its turn") == 0;
}

static bool waits_for_an_engine(const struct store_batch *batch) {
    return strcmp(batch->waiting_for, "an engine: loading") == 0;
}

static bool waits_for_results(const struct store_batch *batch) {
    return strcmp(batch->waiting_for, "results of 2 requests that are with an engine") == 0;
}

/* A batch that once waited for its turn is watched on: an engine that is lost, and a turn that
 * brings no result, are told. */
static void a_batch_whose_turn_has_come_can_be_stuck(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r;
    char first[STORE_ID_BYTES], second[STORE_ID_BYTES];
    struct heard heard = {.lock = PTHREAD_MUTEX_INITIALIZER};
    open_with(&p, &r, 2,
              (struct runner_options){.stuck_ms = STUCK_MS,
                                      .events = {.context = &heard, .event = on_event}});
    create_lines(&p, "first", 4, 0, "", first);
    wait_count(&r, 2);
    create_lines(&p, "second", 5, 1, "", second);
    struct store_batch batch = pipeline_wait(&p, second, waits_for_its_turn);
    store_batch_release(&batch);
    r.is_loading = true;
    batch = pipeline_wait(&p, second, waits_for_an_engine);
    store_batch_release(&batch);
    r.is_loading = false;
    batch = pipeline_wait(&p, second, waits_for_its_turn);
    store_batch_release(&batch);
    recorder_answer(&r, 2);
    wait_count(&r, 4);
    recorder_answer(&r, 2);
    batch = pipeline_wait(&p, first, is_over);
    store_batch_release(&batch);
    wait_count(&r, 6); /* the worker has two lines of the second batch, and keeps them */
    batch = pipeline_wait(&p, second, waits_for_results);
    store_batch_release(&batch);
    int before = stuck_of(&heard);
    wait_stuck(&heard, before + 1);
    assert_string_equal(heard.batch_id, second);
    end(&p, &r, second);
    close_with(&p);
}

static int at_risk_of(struct heard *heard) {
    pthread_mutex_lock(&heard->lock);
    int at_risk = heard->at_risk;
    pthread_mutex_unlock(&heard->lock);
    return at_risk;
}

/* Batches that are hurried or late are told once. The rates are measured: a line per second. */
static void batches_that_will_miss_their_deadline_are_told_once(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r;
    char first[STORE_ID_BYTES], second[STORE_ID_BYTES];
    struct heard heard = {.lock = PTHREAD_MUTEX_INITIALIZER};
    open_with(&p, &r, 4, (struct runner_options){.events = {.context = &heard, .event = on_event}});
    create_lines(&p, "first", 3000, 0, "", first);
    create_lines(&p, "second", 1000, 1, "", second);
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    test_unix_s += 86400 - 1; /* a second is left for either */
    while (at_risk_of(&heard) < 2 && test_real_ns() < until_ns) {
        if (r.answered < 1000 && count_of(&r) > r.answered) recorder_answer(&r, 1);
        clock_move_ms(1000);
        usleep(1000);
    }
    test_unix_s -= 86400 - 1;
    assert_int_equal(at_risk_of(&heard), 2);
    end(&p, &r, first);
    end(&p, &r, second);
    close_with(&p);
    assert_int_equal(at_risk_of(&heard), 2);
}

static void an_engine_that_goes_down_is_told(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    struct heard heard = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.events = {.context = &heard, .event = on_event}},
                  &(struct worker_echo_options){.down_every = 20}, 1);
    pipeline_submit(&p, "d", 50, id);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.completed, 50);
    store_batch_release(&batch);
    close_with(&p);
    assert_true(heard.down >= 2);
}

/* The line runs again at once, so the first job is an orphan. */
static void a_job_that_a_worker_takes_after_it_went_down_is_ended(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r;
    char id[STORE_ID_BYTES];
    open_with(&p, &r, 4, (struct runner_options){0});
    r.falls_first = true;
    create_lines(&p, "only", 1, 0, "", id);
    wait_count(&r, 2);
    uint64_t first = r.jobs[0].id;
    assert_string_equal(r.jobs[1].mark, "only");
    end(&p, &r, id);
    close_with(&p);
    assert_int_equal(r.cancelled, first);
}

/* As after a read of the store that failed when its client was told of it. */
static void a_batch_that_was_missed_is_found_again(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r;
    struct error error;
    struct store_batch batch;
    struct buf lines;
    bool existing;
    struct batch_parameters parameters = {
        .endpoint = ENDPOINT_CHAT, .completion_window = "24h", .window_s = 86400};
    open_with(&p, &r, 4, (struct runner_options){0});
    buf_init(&lines, BUF_UNLIMITED);
    add_chat_lines(&lines, "late", 1);
    pipeline_upload(&p, buf_str(&lines), "batch", parameters.input_file_id);
    must(batch_create(p.store, &parameters, test_now(), &batch, &existing, &error));
    pthread_mutex_lock(&p.runner->lock);
    p.runner->missed_due_ns = 1;
    pthread_mutex_unlock(&p.runner->lock);
    wait_count(&r, 1);
    end(&p, &r, batch.id);
    close_with(&p);
    buf_release(&lines);
    store_batch_release(&batch);
}

static void flex_requests_are_refused_before_others(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct recorder r;
    struct error error;
    uint64_t id;
    struct sender sender = {0};
    open_with(&p, &r, 1, (struct runner_options){.requests_max = 4});
    struct runner_request call = {.endpoint = ENDPOINT_CHAT,
                                  .tier = TIER_FLEX,
                                  .model = STR("m"),
                                  .body = STR("{\"model\":\"m\",\"messages\":[]}")};
    const struct runner_request_events events = {.context = &sender, .result = on_sent_result};
    for (int i = 0; i < 2; i++) must(runner_request(p.runner, &call, &events, &id, &error));
    assert_int_equal(runner_request(p.runner, &call, &events, &id, &error), ERR_LIMIT);
    call.tier = TIER_DEFAULT;
    for (int i = 0; i < 2; i++) must(runner_request(p.runner, &call, &events, &id, &error));
    assert_int_equal(runner_request(p.runner, &call, &events, &id, &error), ERR_LIMIT);
    close_with(&p);
    assert_int_equal(sender.ended, 4);
}

int main(void) {
    log_set_level(LOG_ERROR);
    clock_make_movable();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_that_comes_to_a_halted_runner_is_closed_at_once),
        cmocka_unit_test(a_batch_of_priority_minus_one_behind_zeros_starts_first),
        cmocka_unit_test(the_service_tier_of_a_batch_comes_before_its_priority),
        cmocka_unit_test(a_small_batch_beside_a_big_one_ends_soon),
        cmocka_unit_test(batches_that_share_a_beginning_run_it_one_after_the_other),
        cmocka_unit_test(after_a_crash_half_of_the_lines_run_also_when_loading_crashes_too),
        cmocka_unit_test(many_culprits_are_found_and_no_innocent_line_gets_an_error),
        cmocka_unit_test(a_culprit_is_found_while_single_requests_keep_coming),
        cmocka_unit_test(a_batch_that_waits_for_its_model_holds_up_no_other),
        cmocka_unit_test(
            a_batch_that_stands_still_is_told_with_what_it_waits_for_and_can_be_cancelled),
        cmocka_unit_test(a_batch_behind_another_waits_for_its_turn_and_is_not_stuck),
        cmocka_unit_test(a_batch_whose_turn_has_come_can_be_stuck),
        cmocka_unit_test(batches_that_will_miss_their_deadline_are_told_once),
        cmocka_unit_test(an_engine_that_goes_down_is_told),
        cmocka_unit_test(a_job_that_a_worker_takes_after_it_went_down_is_ended),
        cmocka_unit_test(a_batch_that_was_missed_is_found_again),
        cmocka_unit_test(flex_requests_are_refused_before_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
