/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* runner: takes every batch from its creation to its terminal state, and requests of single clients
 * past it. It validates new batches, leases their lines, keeps the workers fed far ahead, tries
 * again what was lost, commits results through the segment log, counts what is durable, ends
 * batches that are cancelled or whose window closed, and has them published.
 *
 * Knows no HTTP and no model. What is killed at any moment resumes at the next runner_start, in the
 * state its batches were in.
 *
 * Thread: all functions from any thread but open, start and close, which belong to one. Its own:
 * dispatch, validate, publish, and the segment log's writer.  Memory: owns the workers attached to
 * it; borrows the store.  Invariant: only durable results count. */

#include "batch/parameters.h"
#include "protocol/names.h"
#include "protocol/worker.h"

struct runner;

#define RUNNER_WORKERS_MAX 64

/* What an operator, or a webhook, wants to hear of. */
enum runner_event_kind {
    RUNNER_BATCH_STUCK,   /* no result for a long time; told again after twice as long */
    RUNNER_BATCH_AT_RISK, /* at the rate measured it will not meet its deadline */
    RUNNER_ENGINE_DOWN,   /* an engine died or hung with work inside, and is started again */
};

struct runner_event {
    enum runner_event_kind kind;
    const char *batch_id; /* NULL for an engine */
    uint32_t worker;      /* of an engine */
    const char *text;     /* one sentence */
    int64_t age_s;        /* stuck: since the last result; at risk: until the deadline */
};

/* Called on threads of the runner and of workers, without locks; must not block for long. */
struct runner_events {
    void *context;
    void (*event)(void *context, const struct runner_event *event); /* NULL: only the log */
};

/* Zero is a valid start: every zero means the default behind it. */
struct runner_options {
    struct batch_rules rules;   /* lines_max 0: batch_rules_default */
    uint32_t lookahead_lines;   /* in flight for each worker; 4096 */
    uint64_t lookahead_bytes;   /* of request bodies in flight for each worker; 32 MiB */
    uint32_t requests_max;      /* single requests waiting or running; 1024 */
    uint32_t flex_requests_max; /* above so many, those of tier flex are refused; requests_max/2 */
    uint32_t attempts_max;      /* tries of a line that end in OUTCOME_TRY_AGAIN; 5 */
    uint32_t lost_alone_max;    /* times a line may take a worker down when it ran alone; 3 */
    int64_t retry_delay_ms;     /* before the second try, doubled for each further one; 100 */
    int64_t cancel_deadline_ms; /* waiting for jobs of a cancelled or expired batch; 5000 */
    int64_t stuck_ms;           /* without a result until a batch counts as stuck; 900000 */
    struct runner_events events;
    uint64_t result_cache_bytes; /* for answers of equal requests; 0: every line runs */
    int64_t (*now_unix_s)(void); /* clock_unix_s; another one for tests */
    const struct names *names;   /* aliases; borrowed; NULL: none */
};

enum err runner_open(struct runner **ret_runner, struct store *store,
                     const struct runner_options *options, struct error *error) MUST_CHECK;
/* A seat for one more worker, and the events to open that worker with. May be called before and
 * after runner_start. False if all RUNNER_WORKERS_MAX are taken. */
bool runner_worker_seat(struct runner *runner, struct worker_events *ret_events,
                        uint32_t *ret_seat) MUST_CHECK;
/* Puts the worker on its seat; the runner closes it in runner_close. */
void runner_worker_attach(struct runner *runner, uint32_t seat, struct worker *worker);
/* How much of the work goes to a seat, before lines run: where several workers serve a model, of
 * those with room the one with the fewest lines for its weight gets the next; `lines_max` lines at
 * a time at most. Zeros mean 1, and runner_options.lookahead_lines. */
void runner_worker_tune(struct runner *runner, uint32_t seat, uint32_t weight, uint32_t lines_max);
/* Starts the threads and takes up every batch that is not terminal. */
enum err runner_start(struct runner *runner, struct error *error) MUST_CHECK;
/* Takes no new lines and requests, waits up to `deadline_ms` for what is in flight, makes results
 * durable. States stay as they are: the next start resumes. True when nothing was left in flight.
 */
bool runner_drain(struct runner *runner, int64_t deadline_ms);
/* Stops at once; closes the workers. NULL is allowed. */
void runner_close(struct runner *runner);

/* --- batches --- */

/* A new batch is in the store. */
void runner_kick(struct runner *runner, const char *batch_id);
/* The row with live counters. The caller releases it. ERR_NOT_FOUND. */
enum err runner_batch_get(struct runner *runner, struct str batch_id, struct store_batch *ret_batch,
                          struct error *error) MUST_CHECK;
/* Puts live counters over a row read from the store; reads it again when it has become old. */
void runner_batch_overlay(struct runner *runner, struct store_batch *row);
/* The cancel call: *ret_batch is the batch after it (also when it was cancelling or cancelled
 * already). ERR_NOT_FOUND "No batch found with id '…'."; ERR_CONFLICT "Cannot cancel a batch with
 * status '…'." */
enum err runner_batch_cancel(struct runner *runner, struct str batch_id,
                             struct store_batch *ret_batch, struct error *error) MUST_CHECK;

struct runner_page {
    uint64_t after; /* what an earlier page gave as `last`; 0: from the first line on */
    uint64_t lines_max;
    size_t bytes_max; /* the page ends with the first line that reaches it */
};

/* Appends lines of the output and error file, as they will be or are published, in the order in
 * which they became durable; only durable ones, each once, over all pages. Lines that never ran
 * come last, when the batch has ended. *ret_last is where the next page goes on: the number of
 * lines so far, unless records were damaged. *ret_more: the batch is not at its end, or has further
 * lines. ERR_NOT_FOUND: no such batch, or its result files were deleted or expired. */
enum err runner_batch_results(struct runner *runner, struct str batch_id,
                              const struct runner_page *page, struct buf *buf, uint64_t *ret_last,
                              bool *ret_more, struct error *error) MUST_CHECK;

/* Pauses a batch in progress, or lets a paused one go on: *ret_batch is the batch after it, also
 * when it was so already. ERR_NOT_FOUND; ERR_CONFLICT when it is in another state. */
enum err runner_batch_pause(struct runner *runner, struct str batch_id, bool pause,
                            struct store_batch *ret_batch, struct error *error) MUST_CHECK;

/* --- single requests --- */

struct runner_request {
    enum endpoint endpoint;
    enum tier tier;
    int32_t priority;
    bool stream;
    struct str model;        /* the body's `model` */
    struct str body;         /* copied */
    char owner[OWNER_BYTES]; /* as worker_job's */
};

/* Called on threads of the worker, without locks; must not block for long. */
struct runner_request_events {
    void *context;
    void (*delta)(void *context, struct str chunk); /* NULL allowed when not streaming */
    /* Exactly once, and nothing after it. OUTCOME_CANCELLED with status 499 when it was cancelled;
     * status 500 when the worker was lost twice, or once something had been streamed. */
    void (*result)(void *context, const struct worker_result *result);
};

/* ERR_NOT_FOUND: no worker serves the model. ERR_LIMIT: too many requests wait (429).
 * ERR_UNAVAILABLE: draining, or the workers are loading, or the model cannot be loaded (503). When
 * OK, `result` is called once, maybe before this returns. */
enum err runner_request(struct runner *runner, const struct runner_request *call,
                        const struct runner_request_events *events, uint64_t *ret_request_id,
                        struct error *error) MUST_CHECK;
/* Ends the request soon; its result still comes. An id that is done already is ignored. */
void runner_request_cancel(struct runner *runner, uint64_t request_id);

/* --- what is going on --- */

enum model_state { MODEL_UNLOADED, MODEL_LOADING, MODEL_LOADED, MODEL_FAILED };
const char *model_state_name(enum model_state state);

struct runner_status {
    bool ready; /* a worker takes jobs, the disk has room, and nobody drains */
    bool draining;
    bool disk_full;
    uint32_t worker_count;
    uint32_t workers_ready; /* or, when none is: those that load when a job waits for them */
    uint32_t workers_in[MODEL_FAILED + 1]; /* by the state of their model */
    uint64_t lines_in_flight;
    uint64_t requests_in_flight; /* single requests, waiting ones included */
    uint64_t lines_done;         /* durable results since start */
    uint64_t lines_retried;
    uint64_t lines_lost;   /* by workers that went down */
    uint64_t lines_reused; /* of lines_done: with the answer of an equal request */
    uint64_t batches_live;
    uint64_t recovered_lines;   /* results found on the disk at start */
    struct usage usage;         /* of durable batch lines since start */
    uint64_t quality_alarms[4]; /* raised since start, in the order of batch/extras.h's shares */
    uint64_t batches_paused;
    char text[160]; /* "ready", or why not */
};

void runner_status(struct runner *runner, struct runner_status *ret_status);

/* What waits for one model; batches that name several are together under an empty name. */
struct runner_queue {
    char model[256];
    uint64_t lines;       /* of live batches, without a result */
    uint64_t requests;    /* single requests waiting or running; under the name they gave */
    int64_t oldest_age_s; /* since the oldest of these batches was created */
};

#define RUNNER_QUEUES_MAX 64

struct runner_progress {
    struct runner_queue queues[RUNNER_QUEUES_MAX]; /* what is beyond is counted in the last */
    size_t queue_count;
    int64_t oldest_progress_age_s; /* of a batch that could run: since its last result */
    bool has_deadline;
    int64_t deadline_s_min; /* until the first deadline of a live batch; negative: past */
    uint64_t batches_stuck;
    uint64_t batches_at_risk;
};

void runner_progress(struct runner *runner, struct runner_progress *ret_progress);
/* Every worker's own status; at most RUNNER_WORKERS_MAX. Returns how many. */
size_t runner_worker_statuses(struct runner *runner, struct worker_status *ret_statuses,
                              size_t statuses_max);
/* One name under which a model can be asked for. */
struct runner_model {
    struct str name;
    enum model_state state;     /* of its worker */
    const char *text;           /* why it failed; otherwise NULL */
    struct worker_model served; /* what the worker calls it */
};
typedef void (*runner_model_fn)(void *context, const struct runner_model *model);
/* All names, each once, into `add`, which must copy: what workers serve, then the operator's
 * aliases, then the other names of the table. */
void runner_models(struct runner *runner, runner_model_fn add, void *context);
/* The one that a request with this name gets, into `add`; false when there is none. */
bool runner_model_find(struct runner *runner, struct str name, runner_model_fn add, void *context);
