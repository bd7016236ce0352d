/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* scheduler: many requests through one backend, step by step: tokens in, tokens out.
 *
 * It decides which sequences run, which KV blocks they use and share, and which rows the next step
 * has. It knows no model, no device, no JSON and no text. The rules of its decisions are at the
 * heads of compose.c, waiting.h, admission.h and prefix_tree.h.
 *
 * A request is a prompt and how many sequences (n) to generate from it. Each sequence brings one
 * STARTED event if it ever runs, TOKEN events, and then exactly one FINISHED event, whatever
 * happens to it in between.
 *
 *     scheduler_submit(…); …                        any number of requests, thousands are normal
 *     while (scheduler_has_work(s))
 *         if (scheduler_step(s, &error)) die;       events come through on_event
 *
 * To do other work while the device computes, call scheduler_begin and scheduler_end instead of
 * scheduler_step. Between the two, and inside on_event, scheduler_submit, scheduler_cancel,
 * scheduler_finish and scheduler_stats are allowed; inside on_event begin, end, step and close are
 * not. Between the two, scheduler_advance runs the step slice by slice, and runs urgent requests
 * that have come meanwhile before the next slice (compose.c has the limits).
 *
 * As many as scheduler_steps_max steps may be under way, so that a device never waits for the host:
 * begin is allowed while fewer are, and end ends the oldest. A sequence's samples do not depend on
 * how many are; its FINISHED event may come a step later (retire.c).
 *
 * GIVEN TOKENS. Where the caller knows the next tokens of a constrained sequence, it gives them:
 * nothing is sampled for them, and all of them are rows of one step. The scheduler asks for them
 * when a request is submitted and after each sampled token. They bring TOKEN events like sampled
 * ones, also inside scheduler_submit, and count as generated.
 *
 * GUESSED TOKENS. With draft_tokens_max the next tokens of a sequence are guessed from its text, or
 * by `guess`, and checked by the model, where a step has few rows (drafts.h). A step may then bring
 * several TOKEN events of a sequence. The tokens are those that it would have without.
 *
 * A sequence that is cancelled or finished while its rows are under way brings no further TOKEN
 * event. Its FINISHED event comes when the last step with its rows has ended, and its memory is
 * freed then. Without rows under way both happen before the call returns.
 *
 * Thread: one, the engine loop; no locks.
 * Memory: blocks, slots and step arrays are sized at open; a waiting request is one heap block,
 *     freed when its last sequence is finished.
 * Invariant: the tokens of a sequence depend only on its prompt, sampling and seed, never on other
 *     sequences, as far as the backend's arithmetic allows. */

#include "base/err.h"
#include "scheduler/backend.h"
#include "scheduler/sampling.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHEDULER_SEQUENCES_PER_REQUEST_MAX 128u
#define SCHEDULER_REQUESTS_MAX (1u << 22)

struct scheduler;

enum scheduler_event_kind {
    SCHEDULER_STARTED,   /* a sequence runs for the first time; on_event calls nothing back */
    SCHEDULER_SCORED,    /* a token of the prompt was scored: prompt_logprobs */
    SCHEDULER_TOKEN,     /* a token was sampled or given */
    SCHEDULER_FINISHED,  /* the last event of a sequence */
    SCHEDULER_PREEMPTED, /* a sequence lost its blocks; it continues later and loses no token */
};

enum finish_reason {
    FINISH_STOP,      /* a stop or end token, or scheduler_finish */
    FINISH_LENGTH,    /* max_tokens, or the end of the context */
    FINISH_CANCELLED, /* scheduler_cancel */
};

struct scheduler_event {
    enum scheduler_event_kind kind;
    uint64_t id;       /* id of the request */
    uint32_t sequence; /* 0..sequence_count-1 within the request */

    /* SCHEDULER_TOKEN and SCHEDULER_SCORED; all SCORED events of a sequence come first, in order */
    int32_t token;
    uint32_t token_index;        /* TOKEN: from 0 on; SCORED: place in the prompt, from 1 on */
    const struct sample *sample; /* logprobs, if asked for; borrowed until on_event returns */
    bool is_given;               /* TOKEN: it was not sampled */

    /* SCHEDULER_FINISHED; `cached_tokens` also STARTED */
    enum finish_reason reason;
    bool has_stop_token; /* `token` is the stop or end token, the last one reported */
    uint32_t prompt_tokens;
    uint32_t cached_tokens;    /* prompt tokens found in the cache when the sequence began */
    uint32_t generated_tokens; /* TOKEN events of the sequence, a stop token included */
};

typedef void (*scheduler_event_fn)(void *user, const struct scheduler_event *event);

/* Gives the tokens that a sequence may sample next (logit_row.allowed). Called once per sampled
 * token of a request with `is_constrained`, when all tokens before it have been reported. The words
 * must not change until the step has ended.
 * NULL: all tokens. */
typedef const uint32_t *(*scheduler_allowed_fn)(void *user, uint64_t id, uint32_t sequence);

#define SCHEDULER_GIVEN_MAX 256u /* tokens given at once */

/* Gives the tokens that come next in a sequence, at most `room` of them, and returns their number;
 * 0: the next token is sampled. Called for sequences of requests with `is_constrained`, when all
 * tokens before it have been reported. No given token may be a stop or end token. */
typedef uint32_t (*scheduler_given_fn)(void *user, uint64_t id, uint32_t sequence, uint32_t room,
                                       int32_t *ret_tokens);

/* Tells how many of `count` tokens may come one after another in a sequence, behind the tokens that
 * have been reported, and writes the tokens that may come behind each of them, as
 * scheduler_allowed_fn gives them. Called for sequences of requests with `is_constrained`. */
typedef uint32_t (*scheduler_ahead_fn)(void *user, uint64_t id, uint32_t sequence,
                                       const int32_t *tokens, uint32_t count,
                                       const uint32_t **ret_allowed);

#define SCHEDULER_DRAFT_TOKENS_MAX 16u
/* Sequences whose next tokens `guess` is asked for, where no more are in decode. */
#define SCHEDULER_GUESSED_MAX 2u

/* What is known of a sequence whose next tokens are to be guessed, and the guess. */
struct scheduler_guess {
    uint64_t sequence;        /* a number of this sequence alone, above 0 */
    const int32_t *prompt;    /* (prompt_count) */
    const int32_t *generated; /* (generated_count) */
    uint32_t prompt_count;
    uint32_t generated_count;
    uint32_t room; /* most tokens to guess; at least 1 */
    /* Filled by the guess: */
    uint32_t count;                                /* 0..room */
    int32_t tokens[SCHEDULER_DRAFT_TOKENS_MAX];    /* (count) */
    uint8_t certainty[SCHEDULER_DRAFT_TOKENS_MAX]; /* (count) how sure it is, in 1/255 */
    int64_t ns;                                    /* time that the guess took */
    int64_t token_ns; /* that of one token where the prompt was known before; 0: it was not */
};

/* Guesses by a model of its own, on the scheduler's thread. It may be wrong, and it may guess
 * nothing. */
typedef void (*scheduler_guess_fn)(void *guesser, struct scheduler_guess *guess);

struct scheduler_options {
    const struct backend *backend; /* borrowed; must outlive the scheduler */
    /* 0 in max_num_seqs, max_num_batched_tokens and max_model_len, and any value above the
     * backend's own limit, means that limit. */
    uint32_t max_num_seqs; /* sequences that run at once and are not urgent; at most the rows of a
                            * step */
    uint32_t urgent_seqs;  /* slots for urgent requests only, in addition to max_num_seqs; taken out
                              of max_num_seqs when it is 0 or the backend has no more; at most a
                              quarter of all slots */
    uint32_t max_num_batched_tokens; /* rows of a step */
    uint32_t max_model_len;          /* prompt and generated tokens of a sequence */
    bool enable_prefix_caching; /* false: every sequence computes and holds all its blocks alone */
    uint32_t requests_max;      /* waiting and running (default, with 0: SCHEDULER_REQUESTS_MAX) */
    uint64_t seed;              /* for requests without a seed */
    scheduler_event_fn on_event;
    scheduler_allowed_fn allowed; /* NULL when no request is constrained */
    scheduler_given_fn given;     /* NULL: every token is sampled */
    scheduler_ahead_fn ahead;     /* NULL: no token of a constrained request is guessed */
    /* Most tokens guessed per sequence and step; 0: none. Without effect in a backend with states
     * or with two steps under way. */
    uint32_t draft_tokens_max;
    scheduler_guess_fn guess; /* NULL: tokens are guessed from the text alone */
    void *guesser;            /* passed to `guess` */
    void *user;               /* passed to these functions */
};

struct scheduler_request {
    uint64_t id;              /* chosen by the caller; unique among unfinished requests */
    int64_t priority;         /* a lower number runs earlier */
    uint32_t sequence_count;  /* n: 1..SCHEDULER_SEQUENCES_PER_REQUEST_MAX; 0 means 1 */
    const int32_t *prompt;    /* (prompt_count) token ids; copied */
    uint32_t prompt_count;    /* at least 1 */
    struct sampling sampling; /* copied with its arrays; sequence 0 uses its seed, sequence i > 0
                                 uses rng_at(seed, i) */
    bool is_constrained;
    /* A client waits for it: it starts before all requests that are not urgent, and at once. Has no
     * effect when its prompt needs more than three quarters of the KV pool. */
    bool is_urgent;
    uint64_t cache_salt; /* only requests with equal salts share prefixes */
};

struct scheduler_stats {
    uint32_t requests;          /* unfinished requests */
    uint32_t sequences_waiting; /* sequences never started */
    uint32_t sequences_running;
    uint32_t sequences_preempted; /* sequences that wait to be continued */
    uint32_t pages_total;         /* pages of the KV cache (backend.h) */
    uint32_t pages_free;
    uint32_t pages_cached; /* pages of prefixes that no running sequence uses */
    uint32_t pages_used;
    uint64_t steps;
    uint64_t rows;             /* rows of all steps */
    uint64_t prefill_rows;     /* rows of prompts, of recomputed and of given tokens */
    uint64_t generated_tokens; /* TOKEN events */
    uint64_t finished;         /* FINISHED events */
    uint64_t preemptions;
    uint64_t urgent_steps;          /* steps that passed another */
    uint64_t urgent_rows;           /* rows of such steps */
    uint64_t prefix_queried_tokens; /* prompt tokens of sequences at their first start */
    uint64_t prefix_hit_tokens;     /* prompt tokens found in the cache at the first start */
    uint64_t evictions;             /* cached blocks forgotten */
    uint64_t nonfinite_rows;        /* rows whose logits had NaN or +inf */
    uint64_t drafts;                /* guesses that had rows */
    uint64_t draft_tokens;          /* their tokens */
    uint64_t accepted_tokens;       /* tokens of these that were right */
    /* 0, unless the model has states. */
    uint32_t states_total;    /* places for states */
    uint32_t states_used;     /* places of running sequences */
    uint32_t states_stored;   /* stored states of prefixes */
    uint64_t state_saves;     /* states that were saved */
    uint64_t state_hits;      /* sequences that began, or went on, from a stored state */
    uint64_t state_evictions; /* stored states forgotten */
};

/* ERR_INVALID when a number in options or in the backend's caps is outside its range; ERR_LIMIT
 * without memory for the tables. */
enum err scheduler_open(struct scheduler **ret_scheduler, const struct scheduler_options *options,
                        struct error *error) MUST_CHECK;
/* Drops waiting and running requests without events. NULL is allowed. */
void scheduler_close(struct scheduler *scheduler);

/* Queues a request. ERR_INVALID: an empty prompt, a token id outside the vocabulary, sampling out
 * of range. ERR_LIMIT: the prompt and max_tokens do not fit in the context or in the whole KV pool,
 * so that the request could never finish; the sentence has the numbers. ERR_CONFLICT: the id is in
 * use. ERR_UNAVAILABLE: requests_max requests are unfinished. No event follows an error. */
enum err scheduler_submit(struct scheduler *scheduler, const struct scheduler_request *request,
                          struct error *error) MUST_CHECK;

/* Ends all sequences of the request with FINISH_CANCELLED. Ignores an unknown id. */
void scheduler_cancel(struct scheduler *scheduler, uint64_t id);
/* Ends one sequence with FINISH_STOP: the caller found a stop string in its text. Ignores an
 * unknown or finished sequence. */
void scheduler_finish(struct scheduler *scheduler, uint64_t id, uint32_t sequence);

/* True when a step would have rows. */
bool scheduler_has_work(const struct scheduler *scheduler);

/* Composes a step, lets the backend run it and reports its events. Without work it does nothing. An
 * error is the backend's and is fatal: only scheduler_close may follow. */
enum err scheduler_step(struct scheduler *scheduler, struct error *error) MUST_CHECK;
/* The two halves of scheduler_step. *ret_started is false without work, or when the step under way
 * must end first; then no step has begun. */
enum err scheduler_begin(struct scheduler *scheduler, bool *ret_started,
                         struct error *error) MUST_CHECK;
enum err scheduler_end(struct scheduler *scheduler, struct error *error) MUST_CHECK;
uint32_t scheduler_under_way(const struct scheduler *scheduler);
uint32_t scheduler_newest_rows(struct scheduler *scheduler);     /* in the newest step under way */
uint32_t scheduler_steps_max(const struct scheduler *scheduler); /* the backend's */
/* Lets urgent sequences pass the step under way, or else runs a slice of it. May be called any
 * number of times between the two halves. *ret_done is true when only scheduler_end is left. */
enum err scheduler_advance(struct scheduler *scheduler, bool *ret_done,
                           struct error *error) MUST_CHECK;

/* Notes the time from the begin to the end of the step that ended last, guesses included: how long
 * steps take by their rows decides how many tokens are guessed. */
void scheduler_note_time(struct scheduler *scheduler, int64_t ns);

void scheduler_stats(const struct scheduler *scheduler, struct scheduler_stats *ret_stats);

/* Asserts every rule that the scheduler keeps (block conservation, holds against tables, tree
 * shape), in time proportional to the pool. For tests. */
void scheduler_check(const struct scheduler *scheduler);
