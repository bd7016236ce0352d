/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* trials: what a tuning has measured so far, in a file, so that a call that was killed goes on with
 * the next trial.
 *
 *   {"of": TEXT,                 all that the trials depend on: others begin anew
 *    "answers": TEXT,            16 digits per answer of the first run of today's options
 *    "records": [RECORD, …]}     what tune.c writes of each step, in their order
 *
 * Each step replaces the whole file: it is small, and is never half of it.
 *
 * Thread: one.
 * Memory: the file, at most TRIALS_BYTES_MAX. */

#include "tune/trial.h"

#include <jansson.h>
#include <limits.h>

#define TRIALS_BYTES_MAX ((size_t)4 << 20)

/* Zero is a valid start: no file, and nothing is kept. */
struct trials {
    char path[PATH_MAX];
    json_t *kept;
    size_t next; /* the record to be taken */
};

/* Reads the file; one that is absent, damaged or of another `of` is none. */
void trials_open(struct trials *ret_trials, const char *path, const char *of);
/* The next record, borrowed; NULL: all were taken. */
const json_t *trials_next(const struct trials *trials);
/* Takes it. */
void trials_take(struct trials *trials);
/* Keeps a record behind those that were taken, which becomes one of them. Steals it. */
enum err trials_add(struct trials *trials, json_t *record, struct error *error) MUST_CHECK;
/* The answers of the first run, kept with the next record, or as they were kept; those of the trial
 * are its own. False, and no answers, for a file that has none. */
void trials_set_answers(struct trials *trials, const struct trial *trial);
bool trials_get_answers(const struct trials *trials, struct trial *ret_trial);
void trials_close(struct trials *trials);
