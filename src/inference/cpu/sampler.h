/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sampler: from one row of logits to one token, as scheduler/sampling.h says.
 *
 * All facts about a row are in its logit_row, so that the outcome does not depend on other rows. It
 * knows no model: a row is `vocab` floats, and the caller passes only ids that may be sampled,
 * without the padded rows of the embedding.
 *
 * It decides three cases that sampling.h leaves open:
 *   - When min_tokens and `allowed` together leave no token, `allowed` wins.
 *   - When `allowed` alone leaves no token, the row is sampled without it: a row cannot fail.
 *   - When no token that is left has a logit, the lowest id among them is taken. A bad word is
 *     taken before a token that is not allowed.
 *
 * Thread: one thread per struct sampler.
 * Memory: sized at open; a call allocates nothing.
 * Invariant: the counts are all zero between calls. */

#include "kernels/kernels.h"
#include "scheduler/backend.h"

/* A token that may be drawn. */
struct sampler_candidate {
    uint32_t key;    /* draw_key of its logit */
    uint32_t weight; /* above 0 */
    int32_t token;
};

struct sampler {
    const struct kernels *kernels;
    uint32_t vocab;
    struct sampler_candidate *candidates; /* (vocab) */
    uint32_t *counts;                     /* (vocab) how often a token was seen */
    float *logits;                        /* (vocab) the row after penalties and masks */
    uint32_t *weights;                    /* (vocab) weights at the row's temperature */
    uint32_t nonfinite_rows;              /* rows with NaN or +inf so far; the caller may zero it */
};

/* Bytes that sampler_open allocates for a vocabulary. */
size_t sampler_bytes(uint32_t vocab);
enum err sampler_open(struct sampler *ret_sampler, const struct kernels *kernels, uint32_t vocab,
                      struct error *error) MUST_CHECK;
void sampler_close(struct sampler *sampler);

/* Samples from `logits`, (vocab). */
void sampler_sample(struct sampler *sampler, const struct logit_row *row, const float *logits,
                    struct sample *ret_sample);
