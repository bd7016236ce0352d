/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* job: one request on its way through the engine, from its body to its result.
 *
 * Thread: belongs to one stage at a time (prep, loop or finish) and changes owner with the ring
 * that carries it; other threads touch only `is_cancelled`.
 * Memory: owns all it points to.
 * Invariant: id and slot stay the same from job_open to job_close. */

#include "engine/choice.h"
#include "engine/decision.h"
#include "engine/embedding.h"
#include "engine/prep.h"
#include "engine/score.h"
#include "grammar/grammar.h"

#include <stdatomic.h>

#define JOB_RESPONSE_ID_BYTES (REQUEST_ID_BYTES_MAX + 16)

struct job {
    uint64_t id;   /* the caller's */
    uint32_t slot; /* in the engine's table */
    enum endpoint endpoint;
    enum tier tier;
    bool stream;
    bool is_line; /* a line of a batch */
    int32_t priority;
    char owner[OWNER_BYTES]; /* empty: the default owner */
    struct buf body;         /* until prep has read it */
    atomic_bool is_cancelled;

    bool is_refused; /* the answer is `refusal` */
    struct refusal refusal;
    enum outcome outcome;

    struct buf words; /* the answer's body, only of endpoints that are words */

    struct embedding embedding; /* only of endpoints that are pooled */
    struct score score;         /* only of scores: the texts of `embedding` are its pairs */
    struct decision decision;   /* only of decisions; the members below: of the others,
                                   but cache_salt and token_ns */

    struct request request; /* unless prep refused it */
    struct prompt *prompts; /* (request.prompt_count) */
    uint32_t max_tokens;
    uint64_t seed;       /* choice k of every prompt uses seed + k */
    uint64_t cache_salt; /* 0: none */
    int64_t created_unix_s;
    char response_id[JOB_RESPONSE_ID_BYTES];

    uint32_t thought_limit;         /* most tokens of a thought; UINT32_MAX: no limit */
    const uint32_t **closing_masks; /* (request.closing_tokens.count) if there is a limit; the masks
                                       of one token each belong to the engine */
    struct grammar_state *shapes;   /* (choice_count); NULL: the answer may be any text */
    bool takes_given;               /* tokens that its shape forces need not be sampled */
    struct choice *choices;         /* (choice_count) index: prompt · candidates + k */
    uint32_t choice_count;
    uint32_t open_count; /* choices that are not done */
    int64_t token_ns;    /* begin of the step of its last token; 0: it has none yet */

    int64_t arrived_ns;     /* when the engine took it */
    int64_t started_ns;     /* when its first sequence started; 0: not yet */
    int64_t first_token_ns; /* time of its first sampled token; 0: it has none yet */
    int64_t last_token_ns;  /* time of its last sampled token */
};

struct job *job_open(uint64_t id, const struct wire_job *from);
void job_close(struct job *job); /* NULL is allowed */

/* Frees what a refused job no longer needs: its body, tree and prompts. */
void job_drop_request(struct job *job);
/* Refuse the job: it was cancelled, or the engine has failed and another try may succeed. */
void job_refuse_cancelled(struct job *job);
void job_refuse_failed(struct job *job);

/* The tokens of the request over all choices; a prompt counts once. */
struct usage job_usage(const struct job *job);
/* How long its parts took; after its end. */
struct request_times job_times(const struct job *job);
