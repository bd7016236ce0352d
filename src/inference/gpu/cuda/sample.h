/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sample: from rows of logits to tokens and log-probabilities, as kernels/draw.h defines them.
 *
 * Four launches at most. `stats` goes once over the logits: the highest of each row and the
 * logarithm of the sum of exponentials, by absolute chunks of 8,192 ids, so a row's numbers do not
 * depend on the others. A row that is greedy and has neither mask nor edits has its token then.
 * `choose` takes the others, a block per row: edits, mask, what is kept, the draw, and the logits
 * as they were again. Bare rows do without statistics: `choose` reads them twice, and `stats` not
 * at all. `logprobs` serves the rows that ask. It knows no request and no text.
 *
 * Where nothing is left to take (all forbidden, or no finite logit) a row gets `fallback`.
 *
 * Thread: one per stream.
 * Memory: GPU memory of the caller; every call only enqueues. */

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"
#include "gpu/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

#define CUDA_STATS_CHUNK 8192
#define CUDA_VOCAB_MAX (1u << 21) /* tokens whose weights a sum holds (sample_select.cuh) */

/* The statistics of a row's logits as the model gave them. */
struct cuda_stat {
    float max;
    uint32_t best; /* the lowest id of the highest logit; 0 when none is above -inf */
    double lse;    /* log Σ e^logit */
};

struct cuda_logits {
    float *logits; /* (rows, stride); `choose` changes and restores them */
    size_t stride; /* a multiple of 4, at least vocab, and `logits` at a multiple of 16 */
    uint32_t rows;
    uint32_t vocab;    /* ids that may be sampled, at most CUDA_VOCAB_MAX; the statistics read no
                          others */
    uint32_t finished; /* ids that become logits, vocab..stride */
    /* For an 8-bit product: logit = sum · row_scale · column_scale. NULL: they are logits already.
     * `stats` writes the logits back. */
    const float *row_scale;       /* (rows) */
    const uint16_t *column_scale; /* (finished) bf16 */
    bool is_int32;                /* the sums are int32; with row_scale */
    float softcap;                /* 0: none; else softcap · tanh(logit / softcap), written back */
};

struct cuda_sample {
    struct cuda_logits logits;
    struct cuda_stat *stats;      /* (rows), written by stats: of the summed rows */
    void *partial;                /* cuda_sample_partial_bytes, of stats */
    const struct gpu_draw *draws; /* (rows) */
    int32_t *tokens;              /* (rows), written */
    int32_t *last_token;          /* or NULL */
    const uint32_t
        *drawn; /* (drawn_count) rows that `choose` takes: all but the greedy and plain */
    uint32_t drawn_count;
    /* The first rows of `drawn` that have no statistics. Each has a top_p, and neither top_k,
     * min_p, mask nor edits. 0 where `stats` makes the logits. */
    uint32_t bare_count;
    const uint32_t *summed; /* (summed_count) rows that get statistics; all, if bare_count is 0 */
    uint32_t summed_count;
    const uint32_t *masks; /* (…, mask_words) bit t % 32 of word t / 32 allows token t */
    uint32_t mask_words;   /* at least (vocab + 31) / 32 */
    const struct draw_edit *edits;
    float *kept; /* as many as there are edits; scratch of choose */
    /* `stats` adds the number of rows with a NaN or +inf, `choose` that of bare ones. NULL: not
     * counted. */
    uint32_t *nonfinite;
};

size_t cuda_sample_partial_bytes(uint32_t rows, uint32_t vocab);
enum err cuda_sample_stats(const struct cuda_sample *call, struct CUstream_st *stream,
                           struct error *error) MUST_CHECK;
enum err cuda_sample_choose(const struct cuda_sample *call, struct CUstream_st *stream,
                            struct error *error) MUST_CHECK;

/* Answers to what is asked of some rows, from the logits as the model gave them. */
struct cuda_logprobs {
    struct cuda_logits logits;
    const struct cuda_stat *stats;
    const int32_t *tokens;
    const struct gpu_ask *asks; /* (ask_count) */
    uint32_t ask_count;
    struct gpu_answer *answers; /* (ask_count), written */
    const int32_t *named;
    float *named_logits; /* as `named`, written */
};
enum err cuda_logprobs(const struct cuda_logprobs *call, struct CUstream_st *stream,
                       struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif
