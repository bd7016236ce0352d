/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answer: from the log probabilities of a question's labels to its answer.
 *
 * The probability of an option is its share among the labels: the softmax of their log
 * probabilities, divided by the temperature of the question. The label mass is the probability of
 * all labels together in the whole vocabulary: how far the model answered at all. No temperature
 * changes it. Confidence says how concentrated the shares p are, by the formulas of System One.
 * n is the number of options, and `top` the first largest share:
 *
 *     choice   max(0, (n·p[top] − 1) ÷ (n − 1))
 *     score    max(0, 1 − Σ p[i]·|i − top| ÷ u)    with u = Σ |i − (n − 1)/2| ÷ n
 *
 * All sums are in double and in the order of the options, so that equal inputs give equal bits.
 *
 * Thread: any; pure.
 * Memory: appends to the caller's buf. */

#include "decisions/question.h"

struct shares {
    double at[QUESTION_OPTIONS_MAX]; /* (count) 0..1; their sum is 1 */
    uint32_t count;
    uint32_t top; /* the first of the largest */
    double label_mass;
};

/* `logprobs`: (count) log probabilities in the vocabulary, finite, at most 0. */
struct shares shares_of(const double *logprobs, uint32_t count, double temperature);
double shares_choice_confidence(const struct shares *shares);
double shares_score_confidence(const struct shares *shares);
double shares_score(const struct shares *shares);

/* Appends the answer of one question as a JSON object in ASCII: of /v1/decisions, and the one of
 * /v1/systemone. */
void answer_write_question(struct buf *out, const struct question *question,
                           const struct shares *shares);
void answer_write_systemone(struct buf *out, const struct question *question,
                            const struct shares *shares);
