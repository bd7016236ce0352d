/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* trial: one run of the sample, by `quern run` in a process of its own: the way that the owner's
 * files take, with its times and its answers.
 *
 * Thread: one.
 * Memory: 8 bytes per answer, freed by trial_release. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRIAL_WHY_BYTES 300

/* The files of trials. */
struct trial_place {
    const char *folder; /* a temporary one; trials write in it */
    const char *sample; /* the file of requests */
    const volatile bool *stop;
};

/* Zero is a valid start. */
struct trial {
    double requests_per_s;
    double joules_per_request; /* NAN: the machine does not tell */
    uint64_t requests, failed;
    uint64_t
        *answers; /* (answer_count) a hash of each answer's choices, in the order of the file */
    size_t answer_count;
    bool is_refused; /* the run has refused its options before it began, and nothing else is set */
};

/* Runs the sample. `arguments`: options of the engine, ending in NULL. If it ends without results,
 * the error is the run's own: ERR_INVALID where options, model or requests may be the reason, as
 * for an engine that refuses them, that lacks memory, or that a signal ended. ERR_CANCELLED if
 * *stop became true. On failure only `is_refused` is written. */
enum err trial_run(const struct trial_place *place, const char *const *arguments,
                   struct trial *ret_trial, struct error *error) MUST_CHECK;
void trial_release(struct trial *trial);

/* The share of answers that both have and that are equal, 0..1; NAN if they have none. */
double trial_equal_share(const struct trial *a, const struct trial *b);
