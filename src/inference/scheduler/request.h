/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request: a request between scheduler_submit and the end of its last sequence, its sequences, and
 * the table that finds it by its id. Internal to scheduler/.
 *
 * A sequence has one counter, `computed`, that follows its number of tokens (after vLLM V1). In
 * prefill it is far behind and catches up in chunks of the step's size; in decode it is one behind;
 * a cache hit starts it further on; a preemption sets it back to zero. A sequence has no other
 * phases. Tokens that a step under way will sample count as PENDING ones: their number is known
 * before they are.
 *
 *     WAITING ──start──▶ RUNNING ──────▶ DONE
 *                         ▲   │ blocks taken away
 *                         └─ PREEMPTED
 *
 * Thread: the scheduler's only.
 * Memory: a request with its sequences, prompt and sampling arrays is one heap block; the generated
 *     tokens of a sequence are another, from its start on. */

#include "scheduler/scheduler.h"
#include "scheduler/waiting.h"

/* States that a sequence saves on its way through its prompt. */
#define SEQUENCE_SAVES_MAX 8u
/* Lengths of common tokens by which chances of guesses are kept (drafts.h). */
#define SEQUENCE_DRAFT_LENGTHS 7u
/* Ranges of certainty by which chances of guesses of a model are kept. */
#define SEQUENCE_DRAFT_CERTAINTIES 4u

struct live_request;

enum sequence_state { SEQUENCE_WAITING, SEQUENCE_RUNNING, SEQUENCE_PREEMPTED, SEQUENCE_DONE };

struct sequence {
    struct live_request *request;
    uint32_t index; /* within the request */
    enum sequence_state state;

    /* Kept over a preemption. */
    uint64_t started; /* place in the order of first starts; 0: never started */
    uint32_t preemptions;
    uint32_t cached_tokens; /* prompt tokens found in the cache at the first start */
    uint32_t scored;        /* prompt tokens with a logprob, or with one in the current step */
    uint32_t generated_count;
    uint32_t generated_room;
    int32_t *generated;                                /* (generated_count of generated_room) */
    uint8_t draft_chances[SEQUENCE_DRAFT_LENGTHS];     /* in 1/255; 0: not learned yet */
    uint8_t guess_chances[SEQUENCE_DRAFT_CERTAINTIES]; /* likewise, of guesses of a model */
    uint8_t first_guess_chance;                        /* likewise, only of their first tokens */

    /* While running; else 0. */
    uint32_t slot;
    bool slot_is_new;
    uint32_t steps;        /* steps under way with rows of it */
    uint32_t pending;      /* tokens that those steps sample */
    uint64_t newest_step;  /* number of the last step with rows of it */
    uint32_t computed;     /* positions in the cache, including the steps under way */
    uint32_t block_count;  /* blocks in the slot's table */
    uint32_t node_count;   /* leading blocks that are in the prefix tree */
    uint32_t passed_count; /* leading blocks whose window pages it does not hold */
    uint32_t part; /* block that its first rows have copied, held until then; or PREFIX_NONE */

    /* Likewise, of a model with states. */
    uint32_t state_place;
    uint32_t state_from; /* place of the stored state that it begins with, pinned until its first
                            rows; or STATE_NONE */
    uint32_t saves[SEQUENCE_SAVES_MAX]; /* (save_count) ascending positions of its prompt before
                                           which its state is to be saved */
    uint32_t save_count;
    uint32_t unstored; /* position of a saved state that is not stored yet; 0: none */

    bool is_leaving; /* becomes DONE, at the latest when the steps under way have ended */
    bool has_stop_token;
    enum finish_reason reason;
    struct sequence *next_preempted;
    struct sequence *next_leaving;
};

struct live_request {
    struct waiting_item waiting; /* first; its tokens are `prompt` */
    struct live_request *next;   /* in the table's bucket */
    uint64_t id;
    uint64_t seed; /* the seed of sequence 0 */
    struct sampling sampling;
    bool is_constrained;
    bool is_urgent;
    uint64_t cache_salt;
    const int32_t *prompt;
    uint32_t prompt_count;
    uint32_t tokens_max; /* most tokens of a sequence, prompt and generated */
    uint32_t sequence_count;
    uint32_t sequence_next; /* the first that is WAITING, or sequence_count */
    uint32_t open_count;    /* sequences that are not DONE */
    struct sequence sequences[];
};

/* Copies the request to the heap. Aborts without memory. */
struct live_request *live_request_open(const struct scheduler_request *from,
                                       uint32_t sequence_count, uint32_t tokens_max, uint64_t seed);
void live_request_close(struct live_request *request);

/* Prompt and generated tokens together, without pending ones. */
static inline uint32_t sequence_token_count(const struct sequence *sequence) {
    return sequence->request->prompt_count + sequence->generated_count;
}

/* Copies tokens first..first+count-1. */
void sequence_tokens(const struct sequence *sequence, uint32_t first, uint32_t count,
                     int32_t *ret_tokens);
void sequence_append(struct sequence *sequence, int32_t token);
/* Writes guesses behind the generated tokens, whose number stays. */
void sequence_foresee(struct sequence *sequence, const int32_t *tokens, uint32_t count);

/* All zero is an empty table. */
struct request_table {
    struct live_request **buckets; /* (bucket_count) which is 0 or a power of two */
    uint32_t bucket_count;
    uint32_t count;
};

void request_table_release(struct request_table *table); /* closes the requests too */
struct live_request *request_table_find(const struct request_table *table, uint64_t id);
void request_table_add(struct request_table *table, struct live_request *request);
void request_table_remove(struct request_table *table, struct live_request *request);
