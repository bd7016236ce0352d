/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* top_k: the requests of a file whose answers have the largest values of a numeric field, and their
 * answers, without computing all of the others.
 *
 * A request may be computed short (short_request.h): only what its value needs. It may be left out:
 * its bound is a largest value that cannot enter any more. All is done in rounds, each one run over
 * a file of requests:
 *
 *   a request that is not computed yet and can still enter     is computed, short if it has a short
 *                                                              form; with bounds in pieces, which
 *                                                              double
 *   else, a request among the best that is computed short      is computed whole
 *   else                                                       the best are known
 *
 * Of equal values the earlier request is the better one. A short answer without a value counts as
 * its bound, until its whole is computed. So the best are those of a run of all requests, as long
 * as equal requests have equal answers. Each round follows from the results of those before alone,
 * so that a call that was killed goes on with the same rounds.
 *
 * Thread: one.
 * Memory: 56 bytes per request and one line, freed before the return. */

#include "evaluate/candidate.h"

#define TOP_ROUNDS_MAX 64

/* Zero is a valid start. */
struct top_k {
    uint64_t requests;
    uint64_t best;              /* found: fewer than asked for if fewer have a value */
    uint64_t whole, short_only; /* requests by how far they were computed */
    uint64_t left_out;          /* requests that were not computed */
    uint64_t computed_tokens;   /* tokens of answers, and of prompts but cached ones */
    double tokens_per_whole;    /* the same per request that was computed whole; NAN: not known */
    size_t rounds;
};

struct top_k_options {
    const char *requests; /* path */
    const char *folder;   /* has the rounds' files */
    const char *by;       /* the field */
    uint64_t count;       /* how many to find */
    bool is_remote;       /* the model is one of another server */
    const volatile bool *stop;
};

/* Finds the best and writes their result lines, the best first, the sum of the rounds'
 * summaries, as the results and the summary of the candidate, whose name and arguments the caller
 * has set, and its file of lines, one per request in their order:
 *   {"custom_id", "computed": "whole" | "short" | "left_out", "value" or null, "rank" from 1, or null}
 * ERR_INVALID if no answer has the field as a number; errors of candidate_run. */
enum err top_k_run(struct top_k *top, const struct top_k_options *options,
                   const struct candidate *candidate, struct error *error) MUST_CHECK;
/* The computed share of what all requests would take, by the tokens of those that were computed
 * whole; NAN: not known. */
double top_k_share(const struct top_k *top);
