/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_internal: the inside of a worker_upstream, shared by the calls of the runner
 * (worker_upstream.c), the loop of its thread (loop.c), the way of its answers (results.c) and what
 * the upstream learns from them (learn.c).
 *
 * Thread: as each group of members says.
 * Memory: see worker_upstream.h. */

#include "base/rng.h"
#include "json/envelope.h"
#include "net/client.h"
#include "net/sse.h"
#include "protocol/names.h"
#include "workers/upstream/breaker.h"
#include "workers/upstream/key.h"
#include "workers/upstream/limit.h"
#include "workers/upstream/models.h"
#include "workers/upstream/reader.h"
#include "workers/upstream/worker_upstream.h"

#include <pthread.h>

#define UPSTREAM_REASON_BYTES 300

/* A job that waits or is in flight. */
struct upstream_job {
    struct upstream_job *next;
    struct worker_job job; /* its body is `body` */
    bool is_cancelled;     /* under the lock */
    bool is_recalled;      /* it is given back as it came; likewise */
    int64_t taken_ns;      /* when it was submitted */
    /* While it is in flight; the thread's alone. */
    struct net_exchange *exchange;
    const char *model; /* the model's name for the answer; NULL: the upstream's name stays */
    bool is_trial;     /* the one request of a half-open breaker */
    /* While it is streamed. */
    struct net_sse sse;
    int64_t first_ns, last_ns; /* times of its first and last chunk; 0: none yet */
    struct upstream_stream_end end;
    bool wants_usage, has_streamed, is_done, has_failed;
    struct buf error;              /* the envelope of an error event */
    char served[MODEL_NAME_BYTES]; /* its model as this worker calls it; the body may differ */
    char body[];
};

enum upstream_probe { PROBE_NONE, PROBE_HEALTH, PROBE_MODELS };

struct worker_upstream {
    struct worker worker; /* first */
    struct worker_events events;

    /* Constant after open. */
    struct upstream_spec spec;
    char models_url[UPSTREAM_URL_BYTES + 16];
    char job_urls[ENDPOINT_ALL_COUNT][UPSTREAM_URL_BYTES + 32];
    struct net_client *http;
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_closing;
    bool is_quiet;   /* starts no job any more */
    bool is_open;    /* takes jobs */
    bool has_asked;  /* for its models, once */
    bool wants_room; /* submit has answered false since the last room event */
    bool has_cancels;
    char *new_key;                      /* replaces the key of the client; NULL: none waits */
    struct upstream_job *first, **last; /* waiting */
    uint32_t waiting;
    struct upstream_job *running;
    uint32_t running_count;
    struct upstream_models models;
    struct timings timings;
    struct worker_status figures;       /* what status tells, but for what is counted above */
    char reason[UPSTREAM_REASON_BYTES]; /* why it is not open */
    /* Why its latest requests were refused; empty: the latest one was not. */
    char refusal[UPSTREAM_REASON_BYTES];

    /* The thread's alone. */
    struct upstream_limit limit;
    struct upstream_breaker breaker;
    struct rng rng;
    struct buf answer; /* scratch of results */
    bool has_trial;
    struct upstream_key key;
    int64_t refusal_told_ns; /* when the log last told of a refusal; 0: never */
    enum upstream_probe probe;
    bool is_probe_of_breaker; /* else it only asks for models */
    int64_t models_due_ns;
    uint32_t models_failures;
};

/* The main of the thread; the argument is the worker_upstream. */
void *upstream_loop(void *user);
/* Callbacks of net_client. */
bool upstream_on_bytes(void *context, void *owner, struct str bytes);
void upstream_on_done(void *context, const struct net_answer *answer);
/* Ends a job that was not run, waiting ones and those in flight alike; the caller has unlinked it.
 */
void upstream_give_back(struct worker_upstream *upstream, struct upstream_job *job);
/* Ends a job whose request is wrong; the caller has unlinked it. */
void upstream_refuse(struct worker_upstream *upstream, struct upstream_job *job,
                     const struct refusal *refusal);
void upstream_job_free(struct upstream_job *job);
/* Takes the job off the list of those in flight; without the lock. */
void upstream_unlink_running(struct worker_upstream *upstream, struct upstream_job *job);
/* learn.c: the outcome of an answer's job. It decides and changes nothing. */
enum outcome upstream_decide(const struct worker_upstream *upstream,
                             const struct net_answer *answer,
                             const struct upstream_reading *reading);
/* What key, limit and breaker learn from the answer; after upstream_decide. */
void upstream_learn(struct worker_upstream *upstream, const struct net_answer *answer,
                    const struct upstream_reading *reading, enum outcome outcome);
/* Writes "the upstream NAME cannot be reached", or why else no whole answer came. */
void upstream_write_reason(const struct worker_upstream *upstream, const struct net_answer *answer,
                           char ret_reason[UPSTREAM_REASON_BYTES]);
void upstream_probe_done(struct worker_upstream *upstream, const struct net_answer *answer);
