/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* backend: what a model must do for the scheduler. cpu/ implements it; so does tests/sim.
 *
 * A step is a list of rows. A row is one token of one sequence: its key and value go into the KV
 * cache, and it attends to all earlier positions of its sequence and to itself. Rows of a sequence
 * are consecutive in position and in the list; a sequence in decode has one row, one in prefill has
 * many, and both kinds share a step.
 *
 * KV cache: `page_count` pages, each with room for `block_tokens` positions in some of the layers.
 * The layers are in groups with a page each: full_pages groups of layers that see all positions,
 * then window_pages groups of layers that see the last window_tokens of them, a row's own included.
 * Position p of a sequence lives, for group g, in slot p % block_tokens of page
 * pages[g * page_stride + p / block_tokens]. In a window group, blocks that no row of the step sees
 * have meaningless page numbers: such a page may be free or another sequence's.
 * A backend that pads its rows keeps a spare page of its own for them; page_count leaves it out.
 *
 * THE PROMISE that sharing rests on: within a step, layer by layer, keys and values of ALL rows are
 * stored before the attention of ANY row reads. So a row may attend to positions that another
 * sequence of the same step is writing into a block both have in their tables, whichever of the two
 * comes first in the list.
 *
 * Steps touch the cache in the order of their submits. A row reads what earlier steps have written,
 * even while they are under way; and a page that a step reads may be written by the next one.
 *
 * The scheduler promises in turn:
 *   - No two rows of a step write the same slot.
 *   - A page that several sequences have in their tables is written by one of them.
 *   - Every position that a row sees is written by an earlier step, or in this one.
 *   - Where two sequences have equal page numbers, from the first page that a row sees on, they
 *     have equal tokens.
 *   - Sequences that share pages are neighbours in the list as far as possible.
 *
 * COPIES. Two prompts may differ from the middle of a block on. Where copies_pages is set, a step
 * names pages that are copied whole before its first row is stored. The source is a page that only
 * earlier steps have written; no other sequence has the target. Copies are made in their order: one
 * may write a page that an earlier one has read.
 *
 * TWO STEPS UNDER WAY. A step is under way from its submit to the return of its wait. With
 * steps_max 2 the scheduler submits step n+1 while n computes, so that a device never waits for the
 * host. Then two things of a sequence may be unknown to the host when n+1 is submitted:
 *   - The token of a decode row, which n samples. The row has a PENDING TOKEN: step.tokens holds
 *     backend_pending(slot), which stands for the token sampled last in this slot. The slot is the
 *     one of the row's own sequence, which has only this row in the step and kept its slot from n.
 *   - The changes of its logits that depend on that token: `allowed`, penalties and bad words. Such
 *     a logit row is LATE: submit computes its logits and does not sample it. `sample` does, after
 *     the wait for n and before the next submit, while n+1 computes.
 * A row of a sequence that ends in n, or gets its next token without sampling, is computed and its
 * sample thrown away. A late row of such a sequence is never sampled. A step submitted while none
 * is under way has neither kind of row.
 *
 * URGENT STEPS. A backend that computes a step in slices has `advance` and `interject`, and
 * steps_max 1. Then an urgent step may pass a step that has been submitted: between two slices it
 * runs from its beginning to its end. It needs activations of its own; both steps use one KV cache.
 * The scheduler promises that neither step reads or writes a slot that the other writes.
 *
 * GUESSES. A sequence without a state may have rows of guessed tokens behind its last known one,
 * with steps_max 1. It has a logit row for each of them, as for the last known one. What was stored
 * for a wrong guess and behind it is no part of the sequence: its next step begins at the first
 * unknown position, before or at the end of its rows in this one, and writes there again.
 *
 * STATES. With state_places some layers keep no keys and values but a state: a block of numbers,
 * which each row of a sequence reads and changes, in the order of positions. States lie in places.
 * A running sequence has the place `state` to itself, as long as its slot. A step reads the state
 * before the sequence's rows from state_from: the sequence's own place; BACKEND_STATE_ZERO, a state
 * of zeros; or the place of a stored state, which stays as it is. The step leaves the state after
 * the rows in `state`, and with save_rows a copy of the state after the first save_rows rows in the
 * place save_to. The scheduler promises:
 *   - No two sequences of a step write the same place, and none reads a place that the step writes,
 *     but its own.
 *   - A place that a step reads has been written by an earlier step, which may be under way.
 *   - An urgent step reads and writes no place that the step it passes writes, and writes none that
 *     it reads.
 *
 * Errors: an operating error of any call is fatal for the engine process. After it the content of
 * the cache is unknown, and the scheduler takes no further step. A single row cannot fail.
 *
 * Thread: the scheduler's thread calls; a backend may have threads of its own inside.
 * Memory: the arrays of a step belong to the scheduler. With steps_max 1 they do not change from
 *     submit until wait returns, so that a backend may read them late. With steps_max 2 they change
 *     as soon as submit returns, and the rows of `sample` as soon as sample returns: the backend
 *     copies what it needs.
 * Invariant: at most steps_max steps are under way, and waits come in the order of the submits.
 *     Step numbers ascend, also over urgent steps. */

#include "base/err.h"
#include "scheduler/sampling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BACKEND_BLOCK_TOKENS 16u
#define BACKEND_GROUPS_MAX 64u

struct backend_caps {
    uint32_t block_tokens;       /* BACKEND_BLOCK_TOKENS */
    uint32_t page_count;         /* pages 0..page_count-1; 1..2^24 */
    uint32_t full_pages;         /* full pages per block; full_pages + window_pages is 1..64 */
    uint32_t window_pages;       /* window pages per block */
    uint32_t window_tokens;      /* at least 1 with window pages, 0 without */
    uint32_t rows_max;           /* rows of one step, at least 1 */
    uint32_t logit_rows_max;     /* logit rows of one step, at least sequences_max; 0: rows_max */
    uint32_t sequences_max;      /* sequences of one step; slots are 0..sequences_max-1 */
    uint32_t context_tokens_max; /* positions of one sequence, at least 2 */
    uint32_t vocab;              /* token ids are 0..vocab-1 */
    uint32_t urgent_rows_max;    /* rows of an urgent step; 0: the backend cannot interject */
    uint32_t steps_max;          /* steps under way: 1, or 2 with `sample` and without `advance` */
    uint32_t state_places;       /* 0: no layer has a state; else at least sequences_max */
    bool copies_pages;           /* step.copies may have entries */
};

#define BACKEND_STEPS_MAX 2u
#define BACKEND_STATE_ZERO UINT32_MAX /* state_from of a sequence at its beginning */

/* A pending token: in step.tokens, the token sampled last in this slot. Ids are never negative. */
static inline int32_t backend_pending(uint32_t slot) {
    return -1 - (int32_t)slot;
}

static inline bool backend_is_pending(int32_t token) {
    return token < 0;
}

/* The slot of a pending token. */
static inline uint32_t backend_pending_slot(int32_t token) {
    return (uint32_t)(-1 - token);
}

/* One sequence's part of a step. */
struct step_sequence {
    uint32_t slot;         /* place for per-sequence device state; the sequence keeps it from the
                              step with slot_is_new until it is finished or preempted */
    bool slot_is_new;      /* what a backend keeps for the slot is another sequence's */
    uint32_t row_first;    /* its rows are row_first..row_first+row_count-1 */
    uint32_t row_count;    /* at least 1 */
    uint32_t kv_tokens;    /* valid positions in the cache before this step; the first row's one */
    uint32_t block_count;  /* enough for kv_tokens + row_count positions */
    uint32_t page_stride;  /* at least block_count */
    const uint32_t *pages; /* (full_pages + window_pages, block_count), rows page_stride apart: page
                              numbers in order of position */
    /* With state_places; else 0. */
    uint32_t state;      /* place of the state after its rows */
    uint32_t state_from; /* place of the state before them, or BACKEND_STATE_ZERO */
    uint32_t save_rows;  /* 1..row_count: the state after so many rows goes to save_to, too; 0: none
                            does */
    uint32_t save_to;
};

/* A row that needs logits: the last row of its sequence, or its last rows where the tokens of all
 * but the first of them are guessed, from which a token is sampled; or with `scored` a row of the
 * prompt. */
struct logit_row {
    uint32_t row;
    uint32_t sequence; /* index into step.sequences */
    uint32_t index;    /* its own place in step.logit_rows, which is the place of its sample */
    const struct sampling *sampling;
    uint64_t seed;    /* use this one, not sampling.seed */
    uint32_t counter; /* tokens generated so far, which is the index of the next one */
    /* The token to be sampled follows prompt[0..prompt_count) and generated[0..counter), of which
     * the last ones may be guesses. */
    const int32_t *prompt; /* (prompt_count) */
    uint32_t prompt_count;
    /* (counter). NULL in submit where the last of them is pending: then the row is late, or nothing
     * that it asks for depends on generated tokens. */
    const int32_t *generated;
    /* ((vocab + 31) / 32) words: token t is allowed when bit t % 32 of word t / 32 is set. NULL:
     * all tokens are allowed. */
    const uint32_t *allowed;
    bool is_late; /* `sample` samples it, and gets `generated` and `allowed`; submit does not */
    /* The token that follows this row in the prompt: no token is sampled, but its logprob, its rank
     * and prompt_top_logprobs neighbours are needed. NULL: a token is sampled. */
    const int32_t *scored;
};

/* A page to be copied before the rows of a step. */
struct page_copy {
    uint32_t from;
    uint32_t to;
};

struct step {
    uint64_t number; /* 1, 2, …: for messages */
    uint32_t row_count;
    uint32_t sequence_count;
    uint32_t logit_count;
    uint32_t copy_count;
    const int32_t *tokens;                 /* (row_count) ids, or backend_pending(slot) */
    const uint32_t *positions;             /* (row_count) from 0 */
    const struct step_sequence *sequences; /* (sequence_count) in row order */
    const struct logit_row *logit_rows;    /* (logit_count) in row order; may be none */
    const struct page_copy *copies;        /* (copy_count) in the order of copying; may be none */
};

struct token_logprob {
    int32_t token;
    float logprob; /* natural logarithm, 0 or below */
};

/* The result of one logit row. */
struct sample {
    int32_t token;      /* the sampled token, or *scored of a scored row */
    float logprob;      /* logprob of `token`; set with sampling.logprobs, or scored */
    uint32_t rank;      /* rank of `token`, 1 for the most likely; set when scored */
    uint32_t top_count; /* entries of `top`: min(top_logprobs, vocab), or logprob_token_count */
    /* most likely first; among equals the lowest id first */
    struct token_logprob top[SAMPLING_LOGPROB_TOKENS_MAX];
};

/* Copies the entries of `top` that are set, and no more: the array is long. */
static inline void sample_copy(struct sample *ret_sample, const struct sample *sample) {
    memcpy(ret_sample, sample,
           offsetof(struct sample, top) + sample->top_count * sizeof sample->top[0]);
}

struct step_result {
    struct sample *samples;  /* (logit_count) in the order of logit_rows; filled by the backend in
                               the scheduler's memory, which has room for rows_max */
    uint32_t nonfinite_rows; /* rows of these with a logit that is NaN or +inf; 0 before */
};

struct backend_ops {
    /* Starts the step. A device returns at once; a backend without a device may do all work
     * here. */
    enum err (*submit)(void *self, const struct step *step, struct error *error);
    /* Samples late rows of the step `number`, which was submitted last, after the wait for the step
     * before it. Called at most once per step. `rows`, in ascending order of `index`, are all its
     * late rows but those whose samples are for nothing. NULL with steps_max 1. */
    enum err (*sample)(void *self, uint64_t number, const struct logit_row *rows, uint32_t count,
                       struct error *error);
    /* Blocks until the oldest step under way is done and fills result->samples. The samples of late
     * rows that were never sampled are left as they are. */
    enum err (*wait)(void *self, struct step_result *result, struct error *error);
    void (*close)(void *self);
    /* `advance` and `interject` are NULL when no step can pass another. */
    /* Runs the next slice of the step submitted last, some milliseconds of work. *ret_done is true
     * when only wait is left. wait runs all slices that are left. */
    enum err (*advance)(void *self, bool *ret_done, struct error *error);
    /* Runs an urgent step of at most urgent_rows_max rows, between submit and wait of another step,
     * and fills result->samples. */
    enum err (*interject)(void *self, const struct step *step, struct step_result *result,
                          struct error *error);
};

/* Blocks that hold `tokens` positions. */
static inline uint32_t backend_blocks_for(uint32_t tokens) {
    return tokens / BACKEND_BLOCK_TOKENS + (tokens % BACKEND_BLOCK_TOKENS > 0);
}

/* The first block that a row at `position` sees in a group whose layers see the last `window`
 * positions; 0: all. */
static inline uint32_t backend_first_seen_block(uint32_t window, uint32_t position) {
    if (window == 0 || position < window) return 0;
    return (position - window + 1) / BACKEND_BLOCK_TOKENS;
}

/* The opener owns it, and calls ops->close after scheduler_close. */
struct backend {
    const struct backend_ops *ops;
    void *self;
    struct backend_caps caps; /* constant while open */
};
