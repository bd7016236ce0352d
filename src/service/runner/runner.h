/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* runner: takes every batch from its creation to its end, and requests of single clients past it.
 *
 * It validates new batches, leases their lines, keeps the workers supplied, tries lost lines again,
 * commits results through the segment log, ends batches that are cancelled or whose window has
 * closed, and publishes them. A runner that is killed at any moment resumes at the next
 * runner_start, with its batches in the state they were in. Knows no HTTP, no model and no kind of
 * worker.
 *
 * Thread: any, except runner_open, runner_start and runner_close, which belong to one. Its own
 *     threads are dispatch, validate, publish, and the writer of the segment log.
 * Memory: owns the workers attached to it; borrows the store.
 * Invariant: only durable results count. */

#include "batch/erase.h"
#include "batch/page.h"
#include "batch/parameters.h"
#include "protocol/names.h"
#include "protocol/worker.h"
#include "runner/history.h"
#include "runner/retention.h"
#include "store/seglog.h"

struct runner;

#define RUNNER_WORKERS_MAX 64

/* Events for an operator or a webhook. */
enum runner_event_kind {
    RUNNER_BATCH_STUCK,   /* no result for stuck_ms; told again after twice as long */
    RUNNER_BATCH_AT_RISK, /* it will miss its deadline at its measured rate */
    RUNNER_ENGINE_DOWN,   /* a worker went down */
};

struct runner_event {
    enum runner_event_kind kind;
    const char *batch_id; /* NULL for an engine */
    const char *owner;    /* owner of that batch */
    uint32_t worker;      /* RUNNER_ENGINE_DOWN: the seat */
    const char *text;     /* one sentence */
    int64_t age_s;        /* stuck: since the last result; at risk: until the deadline */
};

/* Called on threads of the runner and of workers, without locks; must not block for long. */
struct runner_events {
    void *context;
    void (*event)(void *context, const struct runner_event *event); /* NULL: only the log */
};

/* Zero means the default. */
struct runner_options {
    struct batch_rules rules;   /* lines_max 0: batch_rules_default */
    uint32_t lookahead_lines;   /* lines in flight per worker (default 4096) */
    uint64_t lookahead_bytes;   /* request bodies in flight per worker (default 32 MiB) */
    uint32_t requests_max;      /* single requests waiting or running (default 1024) */
    uint32_t flex_requests_max; /* from here on tier flex is refused (default requests_max / 2) */
    uint32_t attempts_max;      /* tries of a line that end in OUTCOME_TRY_AGAIN (default 5) */
    uint32_t lost_alone_max;    /* crashes of a worker by a line that ran alone (default 3) */
    int64_t retry_delay_ms;     /* before the second try, doubled by each try (default 100 ms) */
    int64_t cancel_deadline_ms; /* for jobs of a cancelled or expired batch (default 5 s) */
    int64_t stuck_ms;           /* without a result: the batch is stuck (default 900 s) */
    struct runner_events events;
    uint64_t result_cache_bytes; /* for answers of equal requests; 0: every line runs */
    uint32_t keep_days;          /* ended batches are deleted after them; 0: never */
    int64_t (*now_unix_s)(void); /* default clock_unix_s; tests have their own */
    const struct names *names;   /* aliases; borrowed; NULL: none */
    bool knows_all;              /* without a worker no model exists; else none is known yet */
    /* Looks whether models have come to this machine since the last look, and serves them; true if
     * one is served now. Takes a while where one has come. NULL: none can come. */
    bool (*look)(void *context);
    void *look_context;
    /* Lines of batches that runner_start takes up wait until runner_adopted, because workers that
     * have outlived the former start may have them. */
    bool holds_lines;
    bool skips_proofs; /* nobody asks for manifests of batches (batch/proofs.h) */
};

enum err runner_open(struct runner **ret_runner, struct store *store,
                     const struct runner_options *options, struct error *error) MUST_CHECK;
/* A seat for one more worker, and the events to open that worker with. May be called before and
 * after runner_start. False if all RUNNER_WORKERS_MAX are taken. */
bool runner_worker_seat(struct runner *runner, struct worker_events *ret_events,
                        uint32_t *ret_seat) MUST_CHECK;
/* Puts the worker on its seat; the runner closes it in runner_close, or at once after
 * runner_halt. */
void runner_worker_attach(struct runner *runner, uint32_t seat, struct worker *worker);
/* Sets how much work goes to a seat, before lines run. Where several workers serve a model, the one
 * with room and the fewest lines for its weight gets the next line; at most `lines_max` are in
 * flight. Zeros mean 1, and runner_options.lookahead_lines. */
void runner_worker_tune(struct runner *runner, uint32_t seat, uint32_t weight, uint32_t lines_max);
/* A worker of this seat has the line of this name (worker_job.line) since a former start. Returns
 * the number of the job, as if it had been submitted; its result, maybe at once, is an event of the
 * worker. 0: the line has a record, or another worker has it, or its batch does not run, or no line
 * is held any more. This and the next two belong to one thread. */
uint64_t runner_adopt(struct runner *runner, uint32_t seat, struct str name);
/* Every worker that has outlived the former start has told its lines: the others run. */
void runner_adopted(struct runner *runner);
/* How many of these jobs, from the first one on, are no jobs of the runner any more: their results
 * are durable, or they run again under other numbers. Until runner_close. */
size_t runner_jobs_ended(struct runner *runner, const uint64_t *job_ids, size_t count);
/* Starts the threads and takes up every batch that has not ended. */
enum err runner_start(struct runner *runner, struct error *error) MUST_CHECK;
/* Takes no new lines and requests, and waits up to `deadline_ms` until none is in flight and all
 * results are durable. No batch changes its state: the next start resumes. True if none is left. */
bool runner_drain(struct runner *runner, int64_t deadline_ms);
/* Gives no more lines to workers, and makes them begin none that they have. */
void runner_quiesce(struct runner *runner);
/* Stops at once and closes the workers. Afterwards the counters of batches are those of what is
 * durable, and nothing but runner_batch_get and runner_close may be called. */
void runner_halt(struct runner *runner);
/* As runner_halt, and frees. NULL is allowed. */
void runner_close(struct runner *runner);

/* --- batches --- */

/* A new batch is in the store. */
void runner_kick(struct runner *runner, const char *batch_id);
/* The row with current counters; the caller releases it. ERR_NOT_FOUND. */
enum err runner_batch_get(struct runner *runner, struct str batch_id, struct store_batch *ret_batch,
                          struct error *error) MUST_CHECK;
/* Puts current counters over a row from the store; reads the row again if it is out of date. */
void runner_batch_overlay(struct runner *runner, struct store_batch *row);
/* Cancels a batch: *ret_batch is the batch afterwards, also if it was cancelling or cancelled
 * already. ERR_NOT_FOUND "No batch found with id '…'."; ERR_CONFLICT "Cannot cancel a batch with
 * status '…'." */
enum err runner_batch_cancel(struct runner *runner, struct str batch_id,
                             struct store_batch *ret_batch, struct error *error) MUST_CHECK;

/* Deletes an ended batch with all that it has (store/batches_remove.h). ERR_NOT_FOUND;
 * ERR_CONFLICT "Cannot delete a batch with status '…'." before its end. */
enum err runner_batch_delete(struct runner *runner, struct str batch_id,
                             struct store_freed *ret_freed, struct error *error) MUST_CHECK;

/* Erases lines of ended batches (batch/erase.h), one call at a time; ERR_UNAVAILABLE while another
 * is under way. The clock of the runner sets `now_unix_s`. */
enum err runner_batch_erase(struct runner *runner, const struct batch_erase *erase,
                            struct batch_erasure *ret_erasure, bool *ret_is_custom_id,
                            struct error *error) MUST_CHECK;

/* A reader of one batch's results, while it runs and after. One thread at a time. */
struct runner_results;

void runner_results_open(struct runner_results **ret_results, struct runner *runner,
                         struct str batch_id);
/* Appends a page of the lines of the output and error files, as they will be or are published, in
 * the order in which they became durable. Over all pages each durable line comes once. Lines that
 * never ran come last, when the batch has ended. ret_read->last is the number of lines so far,
 * unless records were damaged; ->more: the batch has not ended, or has further lines.
 * ERR_NOT_FOUND: no such batch, or its result files were deleted or have expired. */
enum err runner_results_read(struct runner_results *results, const struct page *page,
                             struct buf *buf, struct page_read *ret_read,
                             struct error *error) MUST_CHECK;
void runner_results_close(struct runner_results *results); /* NULL is allowed */

/* Pauses a batch in progress, or resumes a paused one: *ret_batch is the batch afterwards, also if
 * nothing changed. ERR_NOT_FOUND; ERR_CONFLICT in any other state. */
enum err runner_batch_pause(struct runner *runner, struct str batch_id, bool pause,
                            struct store_batch *ret_batch, struct error *error) MUST_CHECK;

/* --- single requests --- */

struct runner_request {
    enum endpoint endpoint;
    enum tier tier;
    int32_t priority;
    bool stream;
    struct str model;        /* the body's `model` */
    struct str body;         /* copied, unless it is owned */
    struct buf *owned;       /* holds `body`, and is empty once the request is taken; may be NULL */
    char owner[OWNER_BYTES]; /* as in struct worker_job */
    int64_t keep_ms;         /* likewise */
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
 * ERR_UNAVAILABLE: the runner drains, workers load, or the model cannot be loaded (503). After OK,
 * `result` is called once, maybe before this returns. */
enum err runner_request(struct runner *runner, const struct runner_request *call,
                        const struct runner_request_events *events, uint64_t *ret_request_id,
                        struct error *error) MUST_CHECK;
/* Ends the request soon; its result still comes. The id of a request that has ended is ignored. */
void runner_request_cancel(struct runner *runner, uint64_t request_id);

/* --- status --- */

enum model_state { MODEL_UNLOADED, MODEL_LOADING, MODEL_LOADED, MODEL_FAILED };
const char *model_state_name(enum model_state state);
enum model_state model_state_of(const struct worker_status *status);

struct runner_status {
    bool ready; /* a worker takes jobs, the disk has room, and the runner does not drain */
    bool draining;
    bool disk_full;
    uint32_t worker_count;
    uint32_t upstreams_reached; /* those that have answered once, ready now or not */
    uint32_t workers_ready;     /* if none is: those that load when a job waits for them */
    uint32_t workers_in[MODEL_FAILED + 1]; /* by the state of their model */
    uint64_t lines_in_flight;
    uint64_t requests_in_flight;              /* single requests, waiting ones included */
    uint64_t lines_done;                      /* durable results since start */
    uint64_t lines_ended[SEGLOG_EXPIRED + 1]; /* lines_done by the kind of their record */
    uint64_t lines_retried;
    uint64_t lines_lost;     /* in flight at workers that went down */
    uint64_t lines_reused;   /* part of lines_done: with the answer of an equal request */
    uint64_t lines_recalled; /* asked back from slow workers at the ends of batches */
    uint64_t lines_adopted;  /* that workers had since a former start */
    uint64_t batches_live;
    uint64_t recovered_lines;   /* results found on the disk at start */
    uint64_t taken_up_lines;    /* lines of the batches that runner_start took up */
    int64_t recovery_ns;        /* time in which runner_start took them up */
    struct usage usage;         /* usage of durable batch lines since start */
    uint64_t quality_alarms[5]; /* raised since start, in the order of batch/extras.h's shares */
    uint64_t shapes[SHAPE_END_COUNT]; /* durable lines that asked for a shape, by their end */
    uint64_t batches_paused;
    uint64_t batches_deleted[DELETED_COUNT]; /* since start */
    uint64_t bytes_freed;                    /* by these deletions */
    uint32_t keep_days;                      /* as in the options */
    char text[WORKER_TEXT_BYTES];            /* "ready", or why it is not ready */
};

void runner_status(struct runner *runner, struct runner_status *ret_status);

/* Work that waits for one model. Batches of several models are together under an empty name. */
struct runner_queue {
    char model[256];
    uint64_t lines;           /* lines of active batches without a result */
    uint64_t requests;        /* single requests waiting or running, by the name they gave */
    uint64_t waiting_batches; /* new ones whose check waits for a worker of the model */
    int64_t oldest_age_s;     /* since the oldest of these batches was created */
};

#define RUNNER_QUEUES_MAX 64

struct runner_progress {
    struct runner_queue queues[RUNNER_QUEUES_MAX]; /* the last one counts all further models too */
    size_t queue_count;
    int64_t oldest_progress_age_s; /* since the last result of the most silent running batch */
    bool has_deadline;
    int64_t deadline_s_min; /* until the first deadline of an active batch; negative: past */
    uint64_t batches_stuck;
    uint64_t batches_at_risk;
};

void runner_progress(struct runner *runner, struct runner_progress *ret_progress);

/* Work of one owner. */
struct runner_owner {
    char owner[OWNER_BYTES]; /* empty: the default owner */
    uint64_t open_batches;   /* batches that have not ended */
    uint64_t queued_lines;   /* lines of these batches without a result */
    uint64_t requests;       /* single requests waiting or running */
};
#define RUNNER_OWNERS_MAX 256

/* Fills the owners that have work, or only the owner `only` (NULL: all); returns their number.
 * Owners above RUNNER_OWNERS_MAX are left out. */
size_t runner_owners(struct runner *runner, const char *only,
                     struct runner_owner ret_owners[RUNNER_OWNERS_MAX]);
/* The last hour: throughput and events. Lives as long as the runner. */
struct history *runner_history(struct runner *runner);
/* The status of every worker; at most RUNNER_WORKERS_MAX. Returns their number. */
size_t runner_worker_statuses(struct runner *runner, struct worker_status *ret_statuses,
                              size_t statuses_max);
/* The first name that the worker at `index` of runner_worker_statuses serves; empty: not known yet.
 * False: there is no such worker. */
bool runner_worker_model(struct runner *runner, size_t index, char ret_model[MODEL_NAME_BYTES]);
/* The histograms of one worker, and the model that /metrics names with them. */
struct runner_timings {
    char model[MODEL_NAME_BYTES]; /* as runner_worker_model tells it */
    uint32_t filled;              /* as worker_ops.timings returns it */
    struct timings timings;
};
/* The timings of the worker at `index` of runner_worker_statuses. */
void runner_worker_timings(struct runner *runner, size_t index, struct runner_timings *ret_timings);
/* One name under which a model can be asked for. */
struct runner_model {
    struct str name;
    enum model_state state;     /* state of its worker */
    const char *text;           /* why it failed; otherwise NULL */
    uint64_t memory_bytes;      /* memory of its process; 0: not loaded, or not known */
    uint64_t card_bytes;        /* memory on the GPU; 0: it runs on the CPU */
    int64_t leaves_ms;          /* until it unloads if no job comes; 0: it stays */
    struct worker_model served; /* under the worker's own name */
};
typedef void (*runner_model_fn)(void *context, const struct runner_model *model);
/* Calls `add`, which must copy, for each name once: names of workers, then the operator's aliases,
 * then names that clients have given, then the other names of the table (protocol/names.h). */
void runner_models(struct runner *runner, runner_model_fn add, void *context);
/* Holds the model unloaded, or ends the hold, on all workers that can unload it. Meanwhile single
 * requests are refused, and lines wait. A restart of the server ends the hold. ERR_NOT_FOUND if no
 * worker serves the model, ERR_CONFLICT if none of its workers can unload it. */
enum err runner_model_hold(struct runner *runner, struct str model, bool is_held,
                           struct error *error) MUST_CHECK;
/* Unloads the model as soon as it has no job, until a job waits for it; a model that cannot be
 * unloaded stays. ERR_NOT_FOUND if no worker serves the model. */
enum err runner_model_park(struct runner *runner, struct str model, struct error *error) MUST_CHECK;
/* Appends what a client can do about a model that no worker serves (names_write_advice). */
void runner_write_advice(struct runner *runner, struct str model, struct buf *buf);
/* Calls `add` for the model that a request with this name gets; false if none does. */
bool runner_model_find(struct runner *runner, struct str name, runner_model_fn add, void *context);
/* As runner_model_find, and looks for models that have come before it finds none. */
bool runner_model_find_anew(struct runner *runner, struct str name, runner_model_fn add,
                            void *context);
/* Serves the models that have come to this machine; true if there is one. */
bool runner_look(struct runner *runner);
