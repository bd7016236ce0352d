/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* worker: the one interface behind which every engine stands: the local engine process, a second
 * one, an upstream HTTP server, the echo worker. What crosses it is the OpenAI request itself.
 *
 * A worker knows no batch, no file and no store. Jobs are identified by a number the runner chose
 * and never reuses. Every accepted job ends in exactly one `result`, or in one `down` that loses
 * all jobs in flight; after `down` the worker takes jobs again as soon as it is back (the runner
 * need not know how).
 *
 * Thread: submit, cancel and close are called by runner threads, events by the worker's own
 * threads; an event must not block for long and must not call back into the worker except for
 * submit and cancel. Memory: all strings are borrowed for the duration of the call. */

#include "base/err.h"
#include "protocol/request.h"

struct worker_job {
    uint64_t id;
    enum endpoint endpoint;
    enum tier tier;
    int32_t priority;
    bool stream;      /* send `delta` events; the result comes all the same */
    bool is_line;     /* of a batch: nobody waits for this one answer */
    struct str model; /* the name under which this worker serves it; the body may say another */
    struct str body;  /* the request body as JSON text, as the client wrote it */
    /* Who asks: cached prefixes are shared inside one owner only. Empty: the default one. */
    char owner[OWNER_BYTES];
    int64_t deadline_unix_s; /* when nobody waits for it any more; 0: never */
};

struct worker_result {
    uint64_t id;
    enum outcome outcome;
    int32_t status;  /* the HTTP status that belongs to `body` */
    struct str body; /* the OpenAI response body, or {"error":{…}}; pure ASCII JSON on one line */
    struct usage usage;
    int64_t retry_after_ms; /* the next try comes no sooner; 0 or less: the runner decides */
};

/* One piece of a streamed answer. */
struct worker_delta {
    uint64_t id;
    struct str
        chunk; /* one `chat.completion.chunk` (or text_completion) as JSON text, without "data: " */
};

struct worker_events {
    void *context;
    void (*delta)(void *context, const struct worker_delta *delta);
    void (*result)(void *context, const struct worker_result *result);
    /* All jobs in flight are lost. `reason` is one sentence for the log. */
    void (*down)(void *context, const char *reason);
    /* There is room again after submit answered false, or the worker has become ready. */
    void (*room)(void *context);
};

/* One model this worker serves. */
struct worker_model {
    struct str name;
    int64_t created_unix_s;
    uint32_t context_tokens_max; /* 0 when not known */
    bool generates, embeds;      /* both false when not known */
};

struct worker_status {
    bool ready;       /* takes jobs now */
    bool is_parked;   /* not loaded, and will be when a job waits for it */
    bool is_failed;   /* will never be ready */
    bool knows_names; /* it will never serve a name that it does not serve now */
    char text[160];   /* "loading", "ready", or why not */
    uint32_t running; /* sequences in the running set, when known */
    uint32_t waiting; /* accepted, not yet running, when known */
    uint64_t restarts;
    uint64_t steps; /* engine steps since its start, when known */
    /* While there are jobs: how long ago a step ended, and the request that has waited longest for
     * its next token got one. */
    int64_t step_age_ms, token_age_ms;
    int64_t step_ms_max;                                      /* the longest step so far */
    uint64_t prompt_tokens, cached_tokens, completion_tokens; /* computed since start, when known */
    double kv_used;                                           /* 0..1 */
    /* Of a worker that is somebody else's server: */
    const char *upstream; /* its name, as long as the worker lives; NULL for the others */
    const char *breaker;  /* "closed", "open", "half_open" */
    uint32_t limit;       /* requests that may be in flight now */
    uint64_t openings;    /* of the breaker */
    uint64_t refusals;    /* requests it did not run */
    bool is_key_refused;  /* it answers nothing but 401, 402 or 403 */
    uint64_t faults;      /* requests that failed and were given back to be tried again */
};

struct worker;

#define WORKER_IDENTITY_BYTES 32

struct worker_ops {
    /* False when it cannot take the job now (full, loading, restarting): the runner keeps the job
     * and tries again after `room`. True: the job is the worker's until its result or `down`. */
    bool (*submit)(struct worker *worker, const struct worker_job *job);
    /* Ends the job soon. Its result still comes: OUTCOME_CANCELLED, or what it was before. */
    void (*cancel)(struct worker *worker, uint64_t job_id);
    /* True when a request that names `model` can be sent here. */
    bool (*serves)(struct worker *worker, struct str model);
    size_t (*models)(struct worker *worker, struct worker_model *ret_models, size_t models_max);
    void (*status)(struct worker *worker, struct worker_status *ret_status);
    /* What makes the answers to two equal requests for `model` equal: the model's bytes and what
     * computes it. False when answers of this worker must not be used again. NULL: never. */
    bool (*identity)(struct worker *worker, struct str model,
                     unsigned char ret_identity[WORKER_IDENTITY_BYTES]);
    /* Jobs of this kind wait for the worker, which is not ready or has no room. Needed by workers
     * that are loaded on demand; NULL otherwise. `deadline_unix_s` 0: none. */
    void (*want)(struct worker *worker, enum tier tier, int64_t deadline_unix_s);
    /* Stops, waits for its threads and processes, frees. No event follows. */
    void (*close)(struct worker *worker);
};

/* The first member of every worker's own struct. */
struct worker {
    const struct worker_ops *ops;
};
