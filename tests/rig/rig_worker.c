/* SPDX-License-Identifier: Apache-2.0 */
#include "rig_worker.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/sync.h"
#include "world.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOBS_MAX 12
#define DOWN_MS 700
#define UP_NS INT64_C(500000000) /* jobs of before its down have come by then */
#define WORKERS_MAX 4
#define ANSWERED_MAX 1024

struct job {
    uint64_t id;
    int64_t begins_ns, due_ns;
    bool is_cancelled, is_recalled;
    char line[WORKER_LINE_BYTES];
    struct buf body;
};

struct rig_worker {
    struct worker worker;
    struct worker_events events;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    uint32_t index;
    struct rng draws;
    struct job jobs[JOBS_MAX];
    uint32_t count;
    int64_t down_until_ns, silent_until_ns; /* 0: it is well */
    uint64_t answered, restarts;
    bool is_killed, was_full, is_stopping;
};

static struct rig_worker *all[WORKERS_MAX];
/* Lines that have an answer which no death of the server takes away. */
static char answered[ANSWERED_MAX][WORKER_LINE_BYTES];
static uint32_t answered_count;

static struct rig_worker *own(struct worker *worker) {
    return (struct rig_worker *)worker;
}

/* --- what may not be --- */

/* A worker of a node is not told the line's name, and knows the line by its question. */
static void name_line(const struct worker_job *job, char ret_name[WORKER_LINE_BYTES]) {
    uint32_t batch, line;
    snprintf(ret_name, WORKER_LINE_BYTES, "%.*s", STR_ARGS(job->line));
    const char *ask = memmem(job->body.at, job->body.bytes, "ask b", 5);
    if (world->plan.nodes && ask && sscanf(ask + 5, "%" SCNu32 "-%" SCNu32, &batch, &line) == 2)
        snprintf(ret_name, WORKER_LINE_BYTES, "#%" PRIu32 ":%" PRIu32, batch, line);
}

static const struct ledger_batch *batch_of(const char *name, const char *colon) {
    if (*name == '#') return &world->ledger.batches[strtoul(name + 1, NULL, 10)];
    return ledger_find((struct str){name, (size_t)(colon - name)});
}

/* Whether the job was handed over while its worker was told to be down: the server takes it for
 * lost with the others, gives it to another worker, and cancels it here once it hears of it. */
static bool was_handed_to_the_dead(const struct rig_worker *self, const struct job *job) {
    return self->restarts > 0 && job->due_ns < self->down_until_ns + UP_NS;
}

static void check_line(const struct worker_job *job, const char *name) {
    if (!job->is_line) return;
    for (uint32_t w = 0; w < WORKERS_MAX && !world->may_rerun; w++)
        for (uint32_t i = 0; all[w] && i < all[w]->count; i++)
            if (strcmp(name, all[w]->jobs[i].line) == 0 && !all[w]->jobs[i].is_cancelled &&
                !was_handed_to_the_dead(all[w], &all[w]->jobs[i]))
                world_fail("%s is with two workers at a time (leases)", name);
    const char *colon = strchr(name, ':');
    if (!colon) world_fail("a line without a name");
    const struct ledger_batch *batch = batch_of(name, colon);
    uint32_t number = (uint32_t)strtoul(colon + 1, NULL, 10);
    bool may_not_rerun = world->plan.nodes && !world->may_rerun;
    for (uint32_t i = 0; may_not_rerun && i < answered_count; i++)
        if (strcmp(name, answered[i]) == 0)
            world_fail("%s runs again, and the queue had its answer (adoption)", name);
    if (batch && batch->is_seen[number])
        world_fail("%s runs again, and the client has its result (I6)", name);
}

/* A server that knows nothing of a line that a node has begun cancels it, and has it run again. */
static void check_cancel(const struct rig_worker *self, const struct job *job) {
    const char *name = job->line;
    const struct ledger_batch *batch = batch_of(name, strchr(name, ':'));
    if (was_handed_to_the_dead(self, job)) return;
    if (world->plan.nodes && !world->may_rerun && !batch->may_be_cancelled &&
        !batch->may_be_deleted && !world->ledger.may_expire)
        world_fail("%s is cancelled, and no client asked for it (adoption)", name);
}

/* --- the thread --- */

static struct job take(struct rig_worker *self, uint32_t at) {
    struct job job = self->jobs[at];
    self->jobs[at] = self->jobs[--self->count];
    return job;
}

static void go_down(struct rig_worker *self, const char *reason) {
    while (self->count > 0) {
        struct job job = take(self, 0);
        buf_release(&job.body);
    }
    self->is_killed = false;
    self->silent_until_ns = 0;
    self->restarts++;
    self->was_full = true;
    self->down_until_ns = clock_monotonic_ns() + DOWN_MS * INT64_C(1000000);
    pthread_mutex_unlock(&self->lock);
    self->events.down(self->events.context, reason);
    pthread_mutex_lock(&self->lock);
}

static void answer(struct rig_worker *self, struct job *job) {
    struct buf text;
    struct worker_result result = {.id = job->id, .outcome = OUTCOME_DONE, .status = 200};
    uint64_t trouble = world->plan.trouble ? rng_below(&self->draws, world->plan.trouble) : 1;
    buf_init(&text, BUF_UNLIMITED);
    if (job->is_cancelled) {
        result.outcome = OUTCOME_CANCELLED;
        result.status = 499;
        buf_add_text(&text, "{\"error\":{\"message\":\"cancelled\"}}");
    } else if (job->is_recalled) {
        result.outcome = OUTCOME_RETURNED;
        buf_add_text(&text, "{}");
    } else if (world->plan.failing == self->index + 1) {
        result.outcome = rng_below(&self->draws, 2) ? OUTCOME_DONE : OUTCOME_TRY_AGAIN;
        result.status = 500;
        buf_add_text(&text, "{\"error\":{\"message\":\"trouble\"}}");
    } else if (trouble == 0) {
        static const enum outcome outcomes[] = {OUTCOME_DONE, OUTCOME_TRY_AGAIN, OUTCOME_NOT_RUN,
                                                OUTCOME_RETURNED};
        result.outcome = outcomes[rng_below(&self->draws, 4)];
        result.status = result.outcome == OUTCOME_DONE ? 400 : 503;
        buf_add_text(&text, "{\"error\":{\"message\":\"trouble\"}}");
    } else {
        ledger_answer(buf_str(&job->body), &text);
        result.usage = (struct usage){.input_tokens = 3, .output_tokens = 2};
    }
    result.body = buf_str(&text);
    self->answered++;
    if (result.outcome == OUTCOME_DONE && *job->line && answered_count < ANSWERED_MAX)
        memcpy(answered[answered_count++], job->line, sizeof job->line);
    pthread_mutex_unlock(&self->lock);
    self->events.result(self->events.context, &result);
    pthread_mutex_lock(&self->lock);
    buf_release(&text);
    buf_release(&job->body);
}

/* The job that is due next; `count` without one. */
static uint32_t next_job(const struct rig_worker *self) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < self->count; i++)
        if (self->jobs[i].due_ns < self->jobs[best].due_ns) best = i;
    return best;
}

static bool is_up(const struct rig_worker *self, int64_t now_ns) {
    return now_ns >= self->down_until_ns;
}

/* Does what is due. Returns when something will be. */
static int64_t work(struct rig_worker *self) {
    int64_t now_ns = clock_monotonic_ns();
    if (!is_up(self, now_ns)) return self->down_until_ns;
    if (self->is_killed || (self->silent_until_ns && now_ns >= self->silent_until_ns)) {
        go_down(self, self->is_killed ? "the engine was killed" : "the connection was lost");
        return 0;
    }
    if (self->silent_until_ns) return self->silent_until_ns;
    if (self->was_full && self->count <= JOBS_MAX / 2) {
        self->was_full = false;
        pthread_mutex_unlock(&self->lock);
        self->events.room(self->events.context);
        pthread_mutex_lock(&self->lock);
        return 0;
    }
    uint32_t at = next_job(self);
    if (at == self->count) return SYNC_NEVER;
    if (self->jobs[at].due_ns > now_ns) return self->jobs[at].due_ns;
    struct job job = take(self, at);
    answer(self, &job);
    return 0;
}

static void *worker_main(void *context) {
    struct rig_worker *self = context;
    pthread_mutex_lock(&self->lock);
    while (!self->is_stopping) {
        int64_t due_ns = work(self);
        if (due_ns > 0 && !self->is_stopping) sync_wait_until(&self->work, &self->lock, due_ns);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

/* --- the operations --- */

static bool worker_submit(struct worker *worker, const struct worker_job *job) {
    struct rig_worker *self = own(worker);
    int64_t now_ns = clock_monotonic_ns();
    pthread_mutex_lock(&self->lock);
    bool takes = is_up(self, now_ns) && self->count < JOBS_MAX && !self->is_stopping;
    if (takes) {
        struct job *kept = &self->jobs[self->count];
        *kept = (struct job){.id = job->id};
        name_line(job, kept->line);
        check_line(job, kept->line);
        self->count++;
        kept->due_ns = now_ns + (int64_t)rng_below(&self->draws, world->plan.delay_ms * 1000000ull);
        kept->begins_ns =
            now_ns + (int64_t)rng_below(&self->draws, world->plan.delay_ms * 1000000ull);
        buf_init(&kept->body, BUF_UNLIMITED);
        buf_add_str(&kept->body, job->body);
        pthread_cond_signal(&self->work);
    } else {
        self->was_full = true;
    }
    pthread_mutex_unlock(&self->lock);
    return takes;
}

static void worker_cancel(struct worker *worker, uint64_t job_id) {
    struct rig_worker *self = own(worker);
    pthread_mutex_lock(&self->lock);
    for (uint32_t i = 0; i < self->count; i++) {
        if (self->jobs[i].id != job_id) continue;
        check_cancel(self, &self->jobs[i]);
        self->jobs[i].is_cancelled = true;
        self->jobs[i].due_ns = 0;
    }
    pthread_cond_signal(&self->work);
    pthread_mutex_unlock(&self->lock);
}

/* What has begun stays, and may run nowhere else: the server is not told. */
static void worker_recall(struct worker *worker, uint64_t job_id) {
    struct rig_worker *self = own(worker);
    pthread_mutex_lock(&self->lock);
    for (uint32_t i = 0; i < self->count; i++) {
        if (self->jobs[i].id != job_id || self->jobs[i].begins_ns <= clock_monotonic_ns()) continue;
        self->jobs[i].is_recalled = true;
        self->jobs[i].due_ns = 0;
    }
    pthread_cond_signal(&self->work);
    pthread_mutex_unlock(&self->lock);
}

static bool worker_serves(struct worker *worker, struct str model) {
    (void)worker;
    return str_is(model, "m");
}

static size_t worker_models(struct worker *worker, struct worker_model *ret_models, size_t max) {
    (void)worker;
    if (max > 0) ret_models[0] = (struct worker_model){.name = STR("m"), .generates = true};
    return max > 0 ? 1 : 0;
}

/* Both workers have the same model, so that an answer of one is that of the other. */
static bool worker_identity(struct worker *worker, struct str model,
                            unsigned char ret_identity[WORKER_IDENTITY_BYTES]) {
    (void)worker, (void)model;
    memset(ret_identity, 7, WORKER_IDENTITY_BYTES);
    return true;
}

static void worker_status_of(struct worker *worker, struct worker_status *ret_status) {
    struct rig_worker *self = own(worker);
    pthread_mutex_lock(&self->lock);
    *ret_status = (struct worker_status){.ready = is_up(self, clock_monotonic_ns()),
                                         .knows_names = true,
                                         .waiting = self->count,
                                         .restarts = self->restarts,
                                         .steps = self->answered,
                                         .text = "ready"};
    pthread_mutex_unlock(&self->lock);
}

static void worker_close(struct worker *worker) {
    struct rig_worker *self = own(worker);
    pthread_mutex_lock(&self->lock);
    self->is_stopping = true;
    pthread_cond_signal(&self->work);
    pthread_mutex_unlock(&self->lock);
    pthread_join(self->thread, NULL);
    for (uint32_t i = 0; i < self->count; i++) buf_release(&self->jobs[i].body);
    self->count = 0;
}

static const struct worker_ops ops = {.submit = worker_submit,
                                      .cancel = worker_cancel,
                                      .recall = worker_recall,
                                      .serves = worker_serves,
                                      .models = worker_models,
                                      .identity = worker_identity,
                                      .status = worker_status_of,
                                      .close = worker_close};

struct worker *rig_worker_open(uint32_t seat, const struct worker_events *events) {
    struct rig_worker *self = mem_new(1, sizeof *self);
    self->worker.ops = &ops;
    self->events = *events;
    self->index = seat;
    self->draws = world_rng('w' + seat);
    pthread_mutex_init(&self->lock, NULL);
    sync_cond_init(&self->work);
    all[seat] = self;
    if (pthread_create(&self->thread, NULL, worker_main, self) != 0) abort();
    return &self->worker;
}

void rig_worker_kill(struct worker *worker) {
    struct rig_worker *self = own(worker);
    pthread_mutex_lock(&self->lock);
    self->is_killed = true;
    pthread_mutex_unlock(&self->lock);
    pthread_cond_signal(&self->work); /* the caller may die in it */
}

void rig_worker_silence(struct worker *worker, int64_t ms) {
    struct rig_worker *self = own(worker);
    pthread_mutex_lock(&self->lock);
    self->silent_until_ns = clock_monotonic_ns() + ms * 1000000;
    pthread_mutex_unlock(&self->lock);
    pthread_cond_signal(&self->work); /* the caller may die in it */
}
