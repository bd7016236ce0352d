/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cascade: models from the cheapest to the dearest, of which each but the first gets only the
 * requests that the one before was unsure of.
 *
 * The first answer stands whose confidence (confidence.h) is at least `until`; that of the last
 * model always stands. An answer without a known confidence, and a failed line, go on to the next
 * model. Which requests a model gets follows from the results of the one before alone, so a call
 * that was killed goes on with the same ones. The answers that stand become the results of one more
 * candidate, byte for byte, and its summary is the sum of the models' summaries. Its file of lines
 * says of each request which models were asked, with their confidences:
 *   {"custom_id", "model": the one whose answer stands, "asked": [{"model", "confidence" or null}]}
 *
 * Thread: one.
 * Memory: the caller's struct; one line of each model. */

#include "evaluate/candidate.h"

#define CASCADE_MODELS_MAX 4
#define CASCADE_NAME "cascade" /* name of the candidate with the answers that stand */

struct cascade_stage {
    size_t candidate;  /* place of the model among the candidates */
    uint64_t requests; /* lines that it got */
    uint64_t answers;  /* lines whose answer is its own */
    uint64_t unknown;  /* lines that it answered without a known confidence */
};

/* Zero is a valid start. */
struct cascade {
    struct cascade_stage stages[CASCADE_MODELS_MAX]; /* `candidate` by the caller */
    size_t count;                                    /* 0: there is no cascade */
    size_t run_count;                                /* stages that got requests */
    double until; /* least confidence of an answer that stands, 0 to 1 */
};

/* Writes the own requests of the model at stage + 1: those of `requests`, which the model at `stage`
 * has run, that it was unsure of. ERR_INVALID if it has other ones from an earlier call. */
enum err cascade_pass_on(struct cascade *cascade, const struct candidate *candidates, size_t stage,
                         const char *requests, struct error *error) MUST_CHECK;
/* Writes the results, the lines and the summary of the candidate `whole` from the stages that have
 * run over `requests`, and counts the answers of each. */
enum err cascade_merge(struct cascade *cascade, const struct candidate *candidates,
                       const char *requests, const struct candidate *whole,
                       struct error *error) MUST_CHECK;
/* Whether the candidate at this place gets a part of the requests only. */
bool cascade_has_late(const struct cascade *cascade, size_t candidate);
