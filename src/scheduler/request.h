/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request: what the scheduler remembers of a request and its sequences, and the table that finds
 * one by its id. Internal to scheduler/.
 *
 * A sequence has one counter, `computed`, that chases its number of tokens (after vLLM V1). Prefill
 * is a long way to go, cut in chunks by the step's size; decode is being one behind; a cache hit is
 * a start further on; preemption is going back to zero. There are no phases beside that.
 *
 *     WAITING ──start──▶ RUNNING ──────▶ DONE
 *                         ▲   │ blocks taken away
 *                         └─ PREEMPTED
 *
 * Thread: the scheduler's only.  Memory: a request with its sequences, prompt and sampling arrays
 * is one heap block; generated tokens of a sequence are another, from its start on. */

#include "scheduler/scheduler.h"
#include "scheduler/waiting.h"

struct live_request;

enum sequence_state { SEQUENCE_WAITING, SEQUENCE_RUNNING, SEQUENCE_PREEMPTED, SEQUENCE_DONE };

struct sequence {
    struct live_request *request;
    uint32_t index; /* within the request */
    enum sequence_state state;

    /* Kept over a preemption. */
    uint64_t started; /* order of first starts; 0 before */
    uint32_t preemptions;
    uint32_t cached_tokens; /* found at the first start */
    uint32_t scored;        /* prompt tokens whose logprob is known or under way, for
                               prompt_logprobs */
    uint32_t generated_count;
    uint32_t generated_room;
    int32_t *generated; /* (generated_count of generated_room) */

    /* While running; else 0. */
    uint32_t slot;
    bool slot_is_new;
    bool is_in_step;       /* has rows in the step under way */
    uint32_t computed;     /* positions in the cache, those of the step under way included */
    uint32_t block_count;  /* of the slot's block table */
    uint32_t node_count;   /* leading blocks that are in the prefix tree */
    uint32_t passed_count; /* leading blocks whose window pages it does not hold */

    bool is_leaving; /* will be DONE, when the step under way has ended at the latest */
    bool has_stop_token;
    enum finish_reason reason;
    struct sequence *next_preempted;
    struct sequence *next_leaving;
};

struct live_request {
    struct waiting_item waiting; /* first; its tokens are `prompt` */
    struct live_request *next;   /* in the table's bucket */
    uint64_t id;
    uint64_t seed; /* of sequence 0 */
    struct sampling sampling;
    bool is_constrained;
    bool is_urgent;
    uint64_t cache_salt;
    const int32_t *prompt;
    uint32_t prompt_count;
    uint32_t tokens_max; /* prompt and generated of a sequence */
    uint32_t sequence_count;
    uint32_t sequence_next; /* the first that is WAITING, or sequence_count */
    uint32_t open_count;    /* sequences that are not DONE */
    struct sequence sequences[];
};

/* A copy on the heap; aborts without memory. */
struct live_request *live_request_open(const struct scheduler_request *from,
                                       uint32_t sequence_count, uint32_t tokens_max, uint64_t seed);
void live_request_close(struct live_request *request);

/* Prompt and generated tokens together. */
uint32_t sequence_token_count(const struct sequence *sequence);
/* Copies tokens first..first+count-1. */
void sequence_tokens(const struct sequence *sequence, uint32_t first, uint32_t count,
                     int32_t *ret_tokens);
void sequence_append(struct sequence *sequence, int32_t token);

/* Zero is an empty table. */
struct request_table {
    struct live_request **buckets; /* (bucket_count), a power of two, or none */
    uint32_t bucket_count;
    uint32_t count;
};

void request_table_release(struct request_table *table); /* closes the requests too */
struct live_request *request_table_find(const struct request_table *table, uint64_t id);
void request_table_add(struct request_table *table, struct live_request *request);
void request_table_remove(struct request_table *table, struct live_request *request);
