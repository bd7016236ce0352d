/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* candidate: one model of an evaluation: its run over the requests, and what came of it.
 *
 * The run is a `quern run` of its own (tune/run_process.h), so it continues where it stopped. Its
 * options and its summary are kept beside its results; with a summary the model has been run, and
 * is not run again.
 *
 * Thread: one.
 * Memory: the caller's struct; candidate_release frees the summary. */

#include "base/err.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define CANDIDATE_NAME_BYTES 128

struct candidate {
    char name[CANDIDATE_NAME_BYTES];
    const char *const *arguments; /* options of its run, ending in NULL; borrowed; NULL: no run */
    bool is_remote;               /* a model of another server */
    /* Hears the warnings of its run; NULL: nobody does. */
    void (*warned)(void *context, const char *name, const char *warning);
    void *context;
    char results[PATH_MAX], summary_path[PATH_MAX], options_path[PATH_MAX];
    char own_requests[PATH_MAX]; /* its requests if it does not run all */
    char lines_path[PATH_MAX];   /* what became of each line in a cascade, or among the best */

    /* From its result lines: */
    uint64_t lines, answered;
    uint64_t truncated; /* answers that ended at their limit of tokens */
    uint64_t empty;     /* answers without a text */
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    uint64_t tokens_p50, tokens_p95, tokens_max; /* prompt and answer together, of one request */
    double tokens_mean;                          /* NAN: no request was answered */

    /* From its run: */
    json_t *summary;       /* as `quern run --json` prints it */
    double requests_per_s; /* NAN: not known */
    bool was_interrupted;  /* its time counts answers that were begun twice */
    double load_seconds;
    uint64_t context_tokens; /* the window of prompt and answer; 0: not known */
};

/* Gives the candidate its files in `folder`. Characters of the name that are none of a file's
 * become "_". */
void candidate_place(struct candidate *candidate, const char *folder);
/* Notes what its results are of: its arguments, and `of` (NULL: all requests). ERR_INVALID if the
 * folder has others of this name. */
enum err candidate_keep(const struct candidate *candidate, const char *of,
                        struct error *error) MUST_CHECK;
/* Runs the model over the file of requests, unless its summary is there. The run's error with its
 * sentence; ERR_INVALID if the folder has a run of it with other options; ERR_CANCELLED. */
enum err candidate_run(const struct candidate *candidate, const char *requests,
                       const volatile bool *stop, struct error *error) MUST_CHECK;
/* Reads its summary and its results. */
enum err candidate_read(struct candidate *candidate, struct error *error) MUST_CHECK;
void candidate_release(struct candidate *candidate);

/* Seconds for that many requests, with loading; NAN: not known. */
double candidate_seconds(const struct candidate *candidate, uint64_t requests);
/* A cost of that many requests by its name in the summary, such as "electricity"; NAN: not known.
 * A managed API is paid by the request, all else by the second. */
double candidate_cost(const struct candidate *candidate, const char *name, uint64_t requests);
/* The share of the window that so many tokens take; NAN: the window is not known. */
double candidate_context_share(const struct candidate *candidate, double tokens);
/* The share of answers that have the shape they were asked for; NAN: none was asked. */
double candidate_valid_share(const struct candidate *candidate);
