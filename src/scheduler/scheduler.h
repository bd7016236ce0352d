/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* scheduler: many requests through one backend, a step at a time: tokens in, tokens out.
 *
 * It decides which sequences run, which KV blocks they use and share, and which rows the next step
 * has. It knows no model, no device, no JSON and no text. How it decides stands at the head of
 * compose.c, waiting.h, admission.h and prefix_tree.h.
 *
 * A request is a prompt and how many sequences (n) to generate from it. Each sequence brings TOKEN
 * events and then exactly one FINISHED event, whatever happens to it in between.
 *
 *     scheduler_submit(…); …                        any number of requests, thousands are normal
 *     while (scheduler_has_work(s))
 *         if (scheduler_step(s, &error)) die;       events come through on_event
 *
 * To do other work while the device computes, call scheduler_begin and scheduler_end instead of
 * scheduler_step. Between the two, and inside on_event, scheduler_submit, scheduler_cancel,
 * scheduler_finish and scheduler_stats are allowed; begin, step and close are not. Between the two,
 * scheduler_advance runs the step slice by slice, and urgent requests that have come meanwhile
 * before the next slice (compose.c says how far). A sequence
 * cancelled or finished while its rows are under way brings no further TOKEN event; its memory and
 * its FINISHED event come when the step has ended, else before the call returns.
 *
 * Thread: one, the engine loop; no locks.  Memory: blocks, slots and step arrays are sized at open;
 * a waiting request is one heap block, freed when its last sequence is finished.
 * Invariant: the tokens of a sequence depend on its prompt, sampling and seed only (as far as the
 * backend's arithmetic does), never on what else runs. */

#include "base/err.h"
#include "scheduler/backend.h"
#include "scheduler/sampling.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHEDULER_SEQUENCES_PER_REQUEST_MAX 128u
#define SCHEDULER_REQUESTS_MAX (1u << 22)

struct scheduler;

enum scheduler_event_kind {
    SCHEDULER_SCORED,    /* a token of the prompt was scored: prompt_logprobs */
    SCHEDULER_TOKEN,     /* a token was sampled */
    SCHEDULER_FINISHED,  /* the last event of a sequence */
    SCHEDULER_PREEMPTED, /* its blocks were taken away; it will be continued, nothing is lost */
};

enum finish_reason {
    FINISH_STOP,      /* a stop or end token, or scheduler_finish */
    FINISH_LENGTH,    /* max_tokens, or the end of the context */
    FINISH_CANCELLED, /* scheduler_cancel */
};

struct scheduler_event {
    enum scheduler_event_kind kind;
    uint64_t id;       /* of the request */
    uint32_t sequence; /* 0..sequence_count-1 within the request */

    /* SCHEDULER_TOKEN; SCHEDULER_SCORED, which come in order and before all of these */
    int32_t token;
    uint32_t token_index; /* 0 for the first generated token; or place in the prompt, from 1 */
    const struct sample *sample; /* logprobs, when asked for; borrowed until on_event returns */

    /* SCHEDULER_FINISHED */
    enum finish_reason reason;
    bool has_stop_token; /* `token` is the stop or end token, the last one reported */
    uint32_t prompt_tokens;
    uint32_t cached_tokens;    /* of the prompt, found in the cache when the sequence began */
    uint32_t generated_tokens; /* TOKEN events there were, a stop token included */
};

typedef void (*scheduler_event_fn)(void *user, const struct scheduler_event *event);

/* The tokens a sequence may sample next (see logit_row.allowed), asked for once for each sampled
 * token of a request with `is_constrained`; must stay unchanged until the step has ended. NULL:
 * all.
 */
typedef const uint32_t *(*scheduler_allowed_fn)(void *user, uint64_t id, uint32_t sequence);

struct scheduler_options {
    const struct backend *backend; /* kept; outlives the scheduler */
    /* 0 in the next three is what the backend can; they never go beyond it. */
    uint32_t max_num_seqs; /* sequences that run at a time, and not more than rows of a step */
    uint32_t urgent_seqs;  /* beyond these, sequences of urgent requests; where max_num_seqs is 0 or
                              the backend cannot run more, out of these; at most a quarter of all */
    uint32_t max_num_batched_tokens; /* rows of a step */
    uint32_t max_model_len;          /* prompt + generated tokens of a sequence */
    bool enable_prefix_caching; /* off: every sequence computes and holds all of its blocks alone */
    uint32_t requests_max;      /* waiting and running; 0: SCHEDULER_REQUESTS_MAX */
    uint64_t seed;              /* for requests without a seed */
    scheduler_event_fn on_event;
    scheduler_allowed_fn allowed; /* NULL when no request is constrained */
    void *user;                   /* for both */
};

struct scheduler_request {
    uint64_t id;              /* the caller's; no two at a time */
    int64_t priority;         /* lower runs earlier */
    uint32_t sequence_count;  /* n: 1..SCHEDULER_SEQUENCES_PER_REQUEST_MAX; 0 means 1 */
    const int32_t *prompt;    /* (prompt_count) token ids; copied */
    uint32_t prompt_count;    /* at least 1 */
    struct sampling sampling; /* copied with its arrays. Sequence 0 uses the seed as it is, sequence
                                 i rng_at(seed, i) */
    bool is_constrained;
    /* Somebody waits for it: it starts before all that is not urgent, and at once. Without effect
     * when its prompt needs more than three quarters of the KV pool. */
    bool is_urgent;
    uint64_t cache_salt; /* prefixes are shared among requests of one salt only */
};

struct scheduler_stats {
    uint32_t requests;          /* known: waiting, running or preempted */
    uint32_t sequences_waiting; /* never started */
    uint32_t sequences_running;
    uint32_t sequences_preempted; /* started, waiting to be continued */
    uint32_t pages_total;         /* of the KV cache: backend.h */
    uint32_t pages_free;          /* hold nothing */
    uint32_t pages_cached; /* hold a prefix no running sequence uses; taken when pages run out */
    uint32_t pages_used;
    uint64_t steps;
    uint64_t rows;             /* over all steps */
    uint64_t prefill_rows;     /* of these, rows of prompts and of recomputed tokens */
    uint64_t generated_tokens; /* TOKEN events */
    uint64_t finished;         /* FINISHED events */
    uint64_t preemptions;
    uint64_t urgent_steps;          /* of the steps, those that passed another */
    uint64_t urgent_rows;           /* of the rows, those of such steps */
    uint64_t prefix_queried_tokens; /* prompt tokens of sequences when first started… */
    uint64_t prefix_hit_tokens;     /* …and how many of them were found in the cache */
    uint64_t evictions;             /* cached blocks forgotten */
};

/* ERR_INVALID when a number in options or in the backend's caps is outside its range; ERR_LIMIT
 * when there is no memory for the tables. */
enum err scheduler_open(struct scheduler **ret_scheduler, const struct scheduler_options *options,
                        struct error *error) MUST_CHECK;
/* Forgets what is still waiting or running, without events. NULL is allowed. */
void scheduler_close(struct scheduler *scheduler);

/* Queues a request. ERR_INVALID: an empty prompt, a token id outside the vocabulary, sampling out
 * of range. ERR_LIMIT: the prompt and max_tokens do not fit in the context or in the whole KV pool,
 * so it could never finish; the sentence has the numbers. ERR_CONFLICT: the id is in use.
 * ERR_UNAVAILABLE: requests_max are in already. No event follows an error. */
enum err scheduler_submit(struct scheduler *scheduler, const struct scheduler_request *request,
                          struct error *error) MUST_CHECK;

/* Ends all sequences of the request with FINISH_CANCELLED. An unknown id is nothing to do. */
void scheduler_cancel(struct scheduler *scheduler, uint64_t id);
/* Ends one sequence with FINISH_STOP: the caller found a stop string in its text. Unknown or
 * finished: nothing to do. */
void scheduler_finish(struct scheduler *scheduler, uint64_t id, uint32_t sequence);

/* Whether a step would do anything. */
bool scheduler_has_work(const struct scheduler *scheduler);

/* Composes a step, lets the backend run it and reports what came out. With no work: OK, nothing
 * done. An error is the backend's and is fatal: only scheduler_close may follow. */
enum err scheduler_step(struct scheduler *scheduler, struct error *error) MUST_CHECK;
/* The two halves of scheduler_step. *ret_started is false when there was no work; then no
 * scheduler_end may follow. */
enum err scheduler_begin(struct scheduler *scheduler, bool *ret_started,
                         struct error *error) MUST_CHECK;
enum err scheduler_end(struct scheduler *scheduler, struct error *error) MUST_CHECK;
/* Between the two halves, as often as the caller likes: lets urgent sequences pass the step under
 * way, or else runs a slice of it. *ret_done: nothing is left but scheduler_end. */
enum err scheduler_advance(struct scheduler *scheduler, bool *ret_done,
                           struct error *error) MUST_CHECK;

void scheduler_stats(const struct scheduler *scheduler, struct scheduler_stats *ret_stats);

/* Checks every rule the scheduler keeps (block conservation, holds against tables, tree shape) in
 * time proportional to the pool, and asserts. For tests, and for the engine's watchdog. */
void scheduler_check(const struct scheduler *scheduler);
