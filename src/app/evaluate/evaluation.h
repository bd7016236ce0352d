/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* evaluation: the same requests through several models, one after the other, and what their answers
 * have in common. Some of the models may be a cascade: they share the requests, and the answers
 * that stand are one more candidate, the last.
 *
 * Everything is in one folder: the requests, the results and the summary of each model. A call that
 * was stopped or killed goes on where it was.
 *
 * Thread: one.
 * Memory: the results' custom_ids and scores, while two files are compared; evaluation_release
 * frees what is kept. */

#include "compare/comparison.h"
#include "evaluate/candidate.h"
#include "evaluate/cascade.h"
#include "evaluate/judged.h"
#include "evaluate/top_k.h"
#include "evaluate/tuning.h"

#define EVALUATION_MODELS_MAX 8
#define EVALUATION_JOBS 4 /* sizes of jobs that times and costs are given for */

extern const uint64_t evaluation_jobs[EVALUATION_JOBS];

struct evaluation {
    /* Set by the caller: */
    const char *input, *folder;
    uint64_t sample;       /* requests to take of the input; 0: all */
    const char *reference; /* a name among the candidates, or a file of results or of judgements;
                              NULL: none, or the columns of `judged` */
    struct judged judged;  /* how judgements are read */
    struct tuning tuning;
    size_t top; /* rows to keep of those that differ most, per comparison */
    const volatile bool *stop;
    void *context;
    void (*say)(void *context, const char *what); /* what is running now; NULL allowed */
    /* A warning of a model's run, such as a server that does not answer; NULL allowed. */
    void (*warned)(void *context, const char *name, const char *warning);
    struct candidate candidates[EVALUATION_MODELS_MAX];
    size_t count;
    uint64_t top_k; /* requests to find, the best by the field `by`; 0: all are run */
    const char *by;
    struct top_k tops[EVALUATION_MODELS_MAX]; /* per candidate, with top_k */
    struct cascade cascade; /* with one, the last candidate is CASCADE_NAME, without arguments */

    char requests[PATH_MAX];
    uint64_t lines;
    /* [i][k] with i < k: candidate k next to candidate i. */
    struct comparison pairs[EVALUATION_MODELS_MAX][EVALUATION_MODELS_MAX];
    /* Each candidate next to a reference that is a file, which is side A. */
    struct comparison references[EVALUATION_MODELS_MAX];
};

/* Adds the cascade of the models that `names` has, separated by commas, the cheapest first, after
 * all other candidates. ERR_INVALID for a name that no model has. */
enum err evaluation_add_cascade(struct evaluation *evaluation, const char *names, double until,
                                struct error *error) MUST_CHECK;
/* Runs the models and compares their results. ERR_INVALID with the sentence of what is wrong, of an
 * option, of the folder or of a run; ERR_CANCELLED. */
enum err evaluation_run(struct evaluation *evaluation, struct error *error) MUST_CHECK;
void evaluation_release(struct evaluation *evaluation);

/* The place of the reference among the candidates; `count` if it is a file, or there is none. */
size_t evaluation_reference(const struct evaluation *evaluation);
/* The comparison of a candidate with the reference; NULL: there is none, or it is the reference. */
const struct comparison *evaluation_compared(const struct evaluation *evaluation, size_t candidate);
