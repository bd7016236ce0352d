/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* backend: what a model must do for the scheduler. model/ implements it; so does tests/sim.
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
 * pages[g * page_stride + p / block_tokens]. In a window group the numbers of blocks that no row of
 * the step sees mean nothing: what they name may be somebody else's, or nobody's.
 * A backend that pads its rows keeps a spare page of its own for them; it is not counted here.
 *
 * THE PROMISE that sharing rests on: within a step, layer by layer, keys and values of ALL rows are
 * stored before the attention of ANY row reads. So a row may attend to positions that another
 * sequence of the same step is writing into a block both have in their tables, whichever of the two
 * comes first in the list.
 * The scheduler promises in turn: no two rows of a step write the same slot; a page that several
 * sequences have in their tables is written by one of them, and every position a row sees is
 * already written, or is written in this step. The backend may take sequences with equal page
 * numbers, from the first one that a row sees on, for ones with equal tokens there; sequences that
 * share pages are neighbours in the list as far as possible.
 *
 * URGENT STEPS. A backend that computes a step in slices has `advance` and `interject`, and then an
 * urgent step may pass one that is under way: between two slices the scheduler has it run from its
 * beginning to its end. It needs activations of its own; the KV cache is the same one. The
 * scheduler promises that neither of the two steps reads or writes a slot that the other writes.
 *
 * Errors: an operating error of any call is fatal for the engine process: what the cache
 * holds is unknown after it, and the scheduler takes no further step. A row can not fail alone.
 *
 * Thread: the scheduler's thread calls; a backend may have threads of its own inside.
 * Memory: what a step points to belongs to the scheduler and stays unchanged from submit until
 * wait returns, so a device may read it late.
 * Invariant: every submit is followed by one wait before the next submit; step numbers ascend,
 * those of urgent steps among them. */

#include "base/err.h"
#include "scheduler/sampling.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BACKEND_BLOCK_TOKENS 16u
#define BACKEND_GROUPS_MAX 64u

struct backend_caps {
    uint32_t block_tokens;       /* BACKEND_BLOCK_TOKENS */
    uint32_t page_count;         /* pages 0..page_count-1; 1..2^24 */
    uint32_t full_pages;         /* of a block; full_pages + window_pages is 1..64 */
    uint32_t window_pages;       /* of a block */
    uint32_t window_tokens;      /* at least 1 where window_pages is; else 0 */
    uint32_t rows_max;           /* rows of one step, at least 1 */
    uint32_t sequences_max;      /* sequences of one step; slots are 0..sequences_max-1 */
    uint32_t context_tokens_max; /* positions of one sequence, at least 2 */
    uint32_t vocab;              /* token ids are 0..vocab-1; int32_t as tokenizer/ has them */
    uint32_t urgent_rows_max;    /* rows of an urgent step; 0: none can be interjected */
};

/* One sequence's part of a step. */
struct step_sequence {
    uint32_t slot;         /* keeps its number from the step with slot_is_new on, until the sequence
                              is finished or preempted: a place for per-sequence device state */
    bool slot_is_new;      /* whatever the slot held is another sequence's */
    uint32_t row_first;    /* its rows are row_first..row_first+row_count-1 */
    uint32_t row_count;    /* at least 1 */
    uint32_t kv_tokens;    /* positions in the cache before this step; the first row's position */
    uint32_t block_count;  /* enough for kv_tokens + row_count positions */
    uint32_t page_stride;  /* at least block_count */
    const uint32_t *pages; /* (full_pages + window_pages, block_count), rows page_stride apart: page
                              numbers in order of position */
};

/* One row whose logits are wanted: the last row of its sequence, from which a token is sampled, or
 * with `scored` a row of the prompt. */
struct logit_row {
    uint32_t row;
    uint32_t sequence; /* index into step.sequences */
    const struct sampling *sampling;
    uint64_t seed;    /* resolved: sampling.seed is not to be used */
    uint32_t counter; /* tokens generated so far = index of the one to be sampled */
    /* The token to be sampled follows prompt[0..prompt_count) and generated[0..counter). */
    const int32_t *prompt; /* (prompt_count) */
    uint32_t prompt_count;
    const int32_t *generated; /* (counter) */
    /* NULL: every token is allowed. Else bit t % 32 of word t / 32 says whether token t is,
     * ((vocab + 31) / 32) words. */
    const uint32_t *allowed;
    /* NULL: a token is sampled. Else the token that follows this row in the prompt: nothing is
     * sampled, but its logprob, its rank and prompt_top_logprobs neighbours are wanted. */
    const int32_t *scored;
};

struct step {
    uint64_t number; /* 1, 2, …: for messages */
    uint32_t row_count;
    uint32_t sequence_count;
    uint32_t logit_count;
    const int32_t *tokens;                 /* (row_count) */
    const uint32_t *positions;             /* (row_count) from 0 */
    const struct step_sequence *sequences; /* (sequence_count) in row order */
    const struct logit_row *logit_rows;    /* (logit_count) in row order; may be none */
};

struct token_logprob {
    int32_t token;
    float logprob; /* natural logarithm, 0 or below */
};

/* What became of one logit row. */
struct sample {
    int32_t token;      /* *scored of a scored row */
    float logprob;      /* of `token`; only when sampling.logprobs, or scored */
    uint32_t rank;      /* of `token`, 1 for the most likely; only when scored */
    uint32_t top_count; /* min(top_logprobs, vocab), or logprob_token_count; the first so many: */
    struct token_logprob top[SAMPLING_LOGPROB_TOKENS_MAX]; /* most likely first, lowest id first
                                                              among equals */
};

/* Copies what is set; `top` is long. */
static inline void sample_copy(struct sample *ret_sample, const struct sample *sample) {
    memcpy(ret_sample, sample,
           offsetof(struct sample, top) + sample->top_count * sizeof sample->top[0]);
}

struct step_result {
    struct sample *samples; /* (logit_count of the step) filled by wait, in order of logit_rows;
                               the scheduler's memory, with room for rows_max */
};

struct backend_ops {
    /* Starts the step. A device returns at once; a backend without one may do all the work here. */
    enum err (*submit)(void *self, const struct step *step, struct error *error);
    /* Blocks until the step is done and fills result->samples. */
    enum err (*wait)(void *self, struct step_result *result, struct error *error);
    void (*close)(void *self);
    /* Both NULL where a step cannot be passed by another. */
    /* Runs the next slice of the step submitted last, some milliseconds of work. *ret_done: nothing
     * is left but wait, which otherwise runs the rest itself. */
    enum err (*advance)(void *self, bool *ret_done, struct error *error);
    /* Between submit and wait of another step: runs an urgent one of at most urgent_rows_max rows,
     * and fills result->samples. */
    enum err (*interject)(void *self, const struct step *step, struct step_result *result,
                          struct error *error);
};

/* The first block that a row at `position` sees in a group whose layers see the last `window`
 * positions; 0: all. */
static inline uint32_t backend_first_seen_block(uint32_t window, uint32_t position) {
    if (window == 0 || position < window) return 0;
    return (position - window + 1) / BACKEND_BLOCK_TOKENS;
}

/* Owned by whoever opened it, who calls ops->close after scheduler_close. */
struct backend {
    const struct backend_ops *ops;
    void *self;
    struct backend_caps caps; /* constant while open */
};
