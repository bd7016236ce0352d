/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* question: the answer to one question of a decision, found in the text without building a tree. It
 * knows no table and no request.
 *
 *   predicate   "probability", or "noul" of /v1/systemone: the share of true
 *   choice      "choice", and "probabilities" of the options
 *   score       "score", and "probabilities" of the levels
 *
 * Probabilities are an object of numbers by option, or an array of objects with "value" and
 * "probability".
 *
 * Thread: any; pure.
 * Memory: views of the text. */

#include "base/str.h"

/* Raw values; `at` is NULL for an absent member. */
struct question {
    struct str name; /* a string */
    struct str truth, choice, score, shares;
};

/* Reads a finite number; false for any other value, and for one of over 64 bytes. */
bool question_number(struct str span, double *ret_number);

/* Finds the members of an answer; all are absent if it is no object. */
void question_read(struct question *ret_question, struct str answer);
/* The entropy of the answer in nats. False if it has no probabilities. */
bool question_entropy(const struct question *question, double *ret_entropy);
/* The most probable level of a score, or the level nearest to the score if it has no probabilities.
 * False if the answer is no score. */
bool question_level(const struct question *question, double *ret_level);
