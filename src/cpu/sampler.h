/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sampler: from one row of logits to one token, as scheduler/sampling.h says.
 *
 * Everything about a row is in its logit_row, so the outcome depends on nothing else in the batch.
 * It knows no model: a row is `vocab` floats, of which the caller shows only ids that may be
 * sampled (padded rows of the embedding are left out).
 *
 * Three things that sampling.h leaves open: when min_tokens and `allowed` together leave no token,
 * `allowed` wins; when `allowed` alone leaves none, the row is sampled as if it were NULL, for a
 * row cannot fail alone; when no token that is left has a logit, the lowest id of them is taken,
 * and a bad word before a token that is not allowed. A logit that is NaN counts as -inf and one
 * that is +inf as FLT_MAX.
 *
 * Thread: one scratch, one thread.  Memory: the scratch is sized at open; a call allocates nothing.
 * Invariant: the counts of a scratch are all zero between calls. */

#include "kernels/kernels.h"
#include "scheduler/backend.h"

struct sampler_candidate {
    float logit;
    int32_t token;
};

struct sampler {
    const struct kernels *kernels;
    uint32_t vocab;
    struct sampler_candidate *candidates; /* (vocab) */
    uint32_t *counts;                     /* (vocab) how often a token was seen */
    float *logits;                        /* (vocab) the row as penalties and masks left it */
    float *weights;                       /* (vocab) probabilities at the row's temperature */
};

/* Bytes sampler_open allocates for a vocabulary. */
size_t sampler_bytes(uint32_t vocab);
enum err sampler_open(struct sampler *ret_sampler, const struct kernels *kernels, uint32_t vocab,
                      struct error *error) MUST_CHECK;
void sampler_close(struct sampler *sampler);

/* Samples from `logits`, (vocab). */
void sampler_sample(struct sampler *sampler, const struct logit_row *row, const float *logits,
                    struct sample *ret_sample);
