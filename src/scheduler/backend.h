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
 * The scheduler promises in turn:
 *   - No two rows of a step write the same slot.
 *   - A page that several sequences have in their tables is written by one of them.
 *   - Every position that a row sees is written already, or is written in this step.
 * - Where two sequences have equal page numbers, from the first page that a row sees on, they have
 * equal tokens. - Sequences that share pages are neighbours in the list as far as possible.
 *
 * URGENT STEPS. A backend that computes a step in slices has `advance` and `interject`. Then an
 * urgent step may pass a step that has been submitted: between two slices it runs from its
 * beginning to its end. It needs activations of its own; both steps use one KV cache. The scheduler
 * promises that neither step reads or writes a slot that the other writes.
 *
 * Errors: an operating error of any call is fatal for the engine process. After it the content of
 * the cache is unknown, and the scheduler takes no further step. A single row cannot fail.
 *
 * Thread: the scheduler's thread calls; a backend may have threads of its own inside.
 * Memory: the arrays of a step belong to the scheduler. They do not change from submit until wait
 *     returns, so that a device may read them late.
 * Invariant: every submit is followed by one wait before the next submit; step numbers ascend, also
 *     over urgent steps. */

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
    uint32_t full_pages;         /* full pages per block; full_pages + window_pages is 1..64 */
    uint32_t window_pages;       /* window pages per block */
    uint32_t window_tokens;      /* at least 1 with window pages, 0 without */
    uint32_t rows_max;           /* rows of one step, at least 1 */
    uint32_t sequences_max;      /* sequences of one step; slots are 0..sequences_max-1 */
    uint32_t context_tokens_max; /* positions of one sequence, at least 2 */
    uint32_t vocab;              /* token ids are 0..vocab-1 */
    uint32_t urgent_rows_max;    /* rows of an urgent step; 0: the backend cannot interject */
};

/* One sequence's part of a step. */
struct step_sequence {
    uint32_t slot;         /* place for per-sequence device state; the sequence keeps it from the
                              step with slot_is_new until it is finished or preempted */
    bool slot_is_new;      /* the slot's state is another sequence's */
    uint32_t row_first;    /* its rows are row_first..row_first+row_count-1 */
    uint32_t row_count;    /* at least 1 */
    uint32_t kv_tokens;    /* positions in the cache before this step; the first row's position */
    uint32_t block_count;  /* enough for kv_tokens + row_count positions */
    uint32_t page_stride;  /* at least block_count */
    const uint32_t *pages; /* (full_pages + window_pages, block_count), rows page_stride apart: page
                              numbers in order of position */
};

/* A row that needs logits: the last row of its sequence, from which a token is sampled, or with
 * `scored` a row of the prompt. */
struct logit_row {
    uint32_t row;
    uint32_t sequence; /* index into step.sequences */
    const struct sampling *sampling;
    uint64_t seed;    /* use this one, not sampling.seed */
    uint32_t counter; /* tokens generated so far, which is the index of the next one */
    /* The token to be sampled follows prompt[0..prompt_count) and generated[0..counter). */
    const int32_t *prompt; /* (prompt_count) */
    uint32_t prompt_count;
    const int32_t *generated; /* (counter) */
    /* ((vocab + 31) / 32) words: token t is allowed when bit t % 32 of word t / 32 is set. NULL:
     * all tokens are allowed. */
    const uint32_t *allowed;
    /* The token that follows this row in the prompt: no token is sampled, but its logprob, its rank
     * and prompt_top_logprobs neighbours are needed. NULL: a token is sampled. */
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
    struct sample *samples; /* (logit_count) in the order of logit_rows; filled by the backend in
                               the scheduler's memory, which has room for rows_max */
};

struct backend_ops {
    /* Starts the step. A device returns at once; a backend without a device may do all work
     * here. */
    enum err (*submit)(void *self, const struct step *step, struct error *error);
    /* Blocks until the step is done and fills result->samples. */
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
