/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* label_head: the pooled state of a text in, one number per label out, as transformers' classes for
 * sequence classification compute them. It knows no pooling, and no function of the numbers.
 *
 * Thread: any.
 * Memory: the caller's.
 * Invariant: the numbers depend on the state and the weights only. */

#include "weights/weights.h"

struct label_head {
    const struct label_weights *weights;
    uint32_t width;  /* width of a state */
    uint32_t labels; /* numbers of a text */
    float epsilon;   /* the norm's, if the head has one */
    float *scratch;  /* (width) */
};

/* state: (width), ret_labels: (labels). ERR_INVALID, naming text `index`, for a number that is not
 * finite. */
/* y (out) = weight (out, in) · x (in). */
void label_head_multiply(const float *weight, const float *x, size_t in, size_t out, float *ret_y);

enum err label_head_run(const struct label_head *head, const float *state, uint32_t index,
                        float *ret_labels, struct error *error) MUST_CHECK;
