/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* worker: the one interface to everything that answers requests: a local engine process, an
 * upstream HTTP server, the echo worker. The OpenAI request itself crosses it.
 *
 * A worker knows no batch, no file and no store. A job is identified by a number that the runner
 * chose and never uses again. After `down` the worker takes jobs again as soon as it is back; how
 * it comes back is its own affair.
 *
 * Thread: the operations are called by threads of the runner, events by the worker's own threads.
 *     An event must not block for long, and calls no operation but submit and cancel.
 * Memory: all strings are borrowed for the duration of the call.
 * Invariant: every accepted job ends in exactly one `result`, or in one `down`, which loses all
 *     jobs in flight. */

#include "base/err.h"
#include "protocol/card.h"
#include "protocol/model_about.h"
#include "protocol/request.h"
#include "protocol/timings.h"

#define WORKER_LINE_BYTES 80
/* A worker that went down so often with jobs and has answered none in between is sick: its machine
 * is suspected more than its jobs. A bisection of good lines and a bad one gets there by chance
 * once in eight times at most. */
#define WORKER_SICK_DOWNS 4

struct worker_job {
    uint64_t id;
    enum endpoint endpoint;
    enum tier tier;
    int32_t priority;
    bool stream;             /* send `delta` events; the result comes as well */
    bool is_line;            /* a line of a batch: no client waits for this one answer */
    struct str model;        /* the worker's own name for it; the body may name another */
    struct str body;         /* the request body as JSON text, as the client wrote it */
    char owner[OWNER_BYTES]; /* cached prefixes are shared inside one owner only */
    /* Names a line over starts of the server, with fewer than WORKER_LINE_BYTES; empty for others.
     * Workers that outlive the server tell it, so that the next start adopts the job. */
    struct str line;
    int64_t deadline_unix_s; /* the answer is of no use after it; 0: always of use */
    /* How long the model stays loaded after it, if no other job says otherwise. 0: as long as the
     * worker keeps it; negative: until another one needs its place. */
    int64_t keep_ms;
};

struct worker_result {
    uint64_t id;
    enum outcome outcome;
    int32_t status;  /* the HTTP status that belongs to `body` */
    struct str body; /* the OpenAI response body, or {"error":{…}}; pure ASCII JSON on one line */
    struct usage usage;
    struct request_times times; /* wait_ns is the runner's */
    enum shape_end shape;   /* outcome for an answer that the worker held to a shape, or checked */
    int64_t retry_after_ms; /* the next try comes no sooner; 0 or less: the runner decides */
};

/* One piece of a streamed answer. */
struct worker_delta {
    uint64_t id;
    struct str chunk; /* a `chat.completion.chunk` or text_completion as JSON, without "data: " */
};

struct worker_events {
    void *context;
    void (*delta)(void *context, const struct worker_delta *delta);
    void (*result)(void *context, const struct worker_result *result);
    /* All jobs in flight are lost. `reason` is a sentence for the log. */
    void (*down)(void *context, const char *reason);
    /* There is room again after submit returned false, or the worker has become ready. */
    void (*room)(void *context);
};

/* One model this worker serves. */
struct worker_model {
    struct str name;
    int64_t created_unix_s;
    uint32_t context_tokens_max; /* 0: not known */
    bool generates, embeds;      /* both false: not known */
    bool decides;                /* takes questions, in prompt format DECISION_PROMPT_FORMAT */
    struct model_about about;    /* borrowed from the worker */
};

#define WORKER_TEXT_BYTES 320

struct worker_status {
    bool ready;        /* takes jobs now */
    bool is_parked;    /* not loaded; loads for a waiting job, unless is_held */
    bool can_unload;   /* worker_ops.hold is not NULL */
    bool is_held;      /* an administrator keeps its model unloaded */
    bool is_failed;    /* will never be ready */
    bool is_vacant;    /* a seat for a worker of another machine, and none is there */
    bool is_unheard;   /* its answers cannot come now: what lies between is away */
    bool is_silent;    /* its node shows no sign of life, and may be lost */
    bool knows_names;  /* it will never serve a name that it does not serve now */
    int64_t leaves_ms; /* until the model unloads if no job comes; 0: it stays */
    /* "loading", "ready", or why it is not ready */
    char text[WORKER_TEXT_BYTES];
    uint64_t restarts;
    /* Numbers that a worker does not know are 0. */
    uint32_t running; /* sequences in the running set, or requests in flight */
    uint32_t waiting; /* accepted, not yet running */
    /* The counters go on where a restarted engine begins again at 0. */
    uint64_t steps;       /* steps of the engine; others: jobs answered */
    int64_t step_age_ms;  /* since the last step ended; 0 without jobs */
    int64_t token_age_ms; /* since the oldest last token of a running request; 0: none runs */
    int64_t step_ms_max;  /* the longest step so far */
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    uint64_t prefix_queries; /* prompt tokens looked up in the prefix cache */
    uint64_t preemptions;    /* sequences that lost their KV blocks and were continued later */
    uint64_t nonfinite_rows; /* rows whose logits had NaN or +inf */
    uint64_t drafts;         /* guesses of next tokens that the model checked */
    uint64_t draft_tokens, accepted_tokens; /* their tokens, and those that were right */
    /* States of recurrent layers: prefixes stored, sequences that began at one, forgotten ones, and
     * how many there are. */
    uint64_t state_saves, state_hits, state_evictions;
    uint32_t states_stored;
    double kv_used;        /* 0..1 */
    uint64_t memory_bytes; /* resident bytes of the engine's process */
    int process;           /* number of that process; 0: none */
    char card
        [CARD_UUID_BYTES]; /* the UUID of the GPU that it computes on; empty: none, or not known */
    struct card_ledger ledger; /* account of its memory there */
    /* For an upstream only: */
    const char *upstream; /* its name, as long as the worker lives; NULL: no upstream */
    const char *breaker;  /* "closed", "open", "half_open" */
    uint32_t limit;       /* requests that may be in flight now */
    uint64_t openings;    /* openings of the breaker */
    uint64_t refusals;    /* answers that were OUTCOME_NOT_RUN */
    uint64_t faults;      /* answers that were OUTCOME_TRY_AGAIN */
    bool is_key_refused;  /* it answers nothing but 401, 402 or 403 */
    bool is_reached;      /* it has answered something, or takes jobs: later it is only away */
    bool is_refusing; /* it refused the latest request, as overloaded servers do; `text` has why */
};

struct worker;

#define WORKER_IDENTITY_BYTES 32

struct worker_ops {
    enum shape_handling shapes;
    /* False if it cannot take the job now (full, loading, restarting): the runner keeps the job and
     * tries again after `room`. True: the worker has the job until its result or `down`. */
    bool (*submit)(struct worker *worker, const struct worker_job *job);
    /* Ends the job soon. Its result still comes: OUTCOME_CANCELLED, or what it was before. */
    void (*cancel)(struct worker *worker, uint64_t job_id);
    /* Gives the job back soon, as OUTCOME_RETURNED, if it has not begun; else the job goes on, and
     * no one is told. NULL: it does not know which jobs have begun, or gives none back. */
    void (*recall)(struct worker *worker, uint64_t job_id);
    /* True if it serves a model under exactly this name. */
    bool (*serves)(struct worker *worker, struct str model);
    size_t (*models)(struct worker *worker, struct worker_model *ret_models, size_t models_max);
    void (*status)(struct worker *worker, struct worker_status *ret_status);
    /* Copies the histograms and returns the set of those that the worker fills, bit i for enum
     * timing i. NULL: it fills none. */
    uint32_t (*timings)(struct worker *worker, struct timings *ret_timings);
    /* A hash of everything but the request that an answer for `model` depends on: the model's bytes
     * and what computes it. False if answers must not be used again. NULL: they never may. */
    bool (*identity)(struct worker *worker, struct str model,
                     unsigned char ret_identity[WORKER_IDENTITY_BYTES]);
    /* A mark that copies of the model's weights have in common, on whatever machine they are. False
     * if it is not known. NULL: the worker has no weights, or none that it sees. */
    bool (*weights)(struct worker *worker, struct str model,
                    unsigned char ret_mark[WORKER_IDENTITY_BYTES]);
    /* Such jobs wait for the worker, which is not ready or has no room. For workers that are loaded
     * on demand; NULL for others. `deadline_unix_s` 0: none. */
    void (*want)(struct worker *worker, enum tier tier, int64_t deadline_unix_s);
    /* True: unloads the model soon and keeps it unloaded. Single requests end first; lines are
     * returned. False: lets the model load, at once if no other model has its place. NULL: the
     * worker has no model to unload. */
    void (*hold)(struct worker *worker, bool is_held);
    /* Unloads the model as soon as it has no job, until a job waits for it. NULL: as for `hold`. */
    void (*park)(struct worker *worker);
    /* True: unloads the model, and serves it under no name until it is asked with false; then it
     * loads when a job comes. NULL: it always serves its models. */
    void (*retire)(struct worker *worker, bool is_retired);
    /* Begins no job any more; jobs that wait come back as OUTCOME_RETURNED. NULL: its jobs have all
     * begun. */
    void (*quiesce)(struct worker *worker);
    /* Stops its threads and processes, waits for them and frees. No event follows. */
    void (*close)(struct worker *worker);
};

/* The first member of each worker's own struct. */
struct worker {
    const struct worker_ops *ops;
};
