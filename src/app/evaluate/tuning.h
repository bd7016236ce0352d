/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tuning: what each setting does to the requests of an evaluation: its impact on the rate and on
 * the answers, what it saves of a whole job, and what it takes to use it.
 *
 * One model is measured: the chosen one; of a cascade its first; if the chosen one is of another
 * server, the first that runs here. The trials are those of `quern tune` (tune/tune.h), over the
 * first requests of the evaluation. The figures are kept in the folder, as tune.json, and are not
 * measured again by a call with the same wishes. A call that was stopped or killed in between goes
 * on with the next trial (tune/trials.h), as tune/trials.json.
 *
 * Thread: one.
 * Memory: the figures as JSON; tuning_release frees them. */

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct evaluation;

/* Zero is a valid start, for none. */
struct tuning {
    /* Set by the caller: */
    bool is_wanted;
    const char *const *knobs; /* (knob_count) options to try; count 0: all */
    size_t knob_count;
    uint32_t lines; /* requests of each trial, from the beginning */
    size_t rounds;
    double seconds; /* no trial begins later */

    json_t *measured; /* as tuning_json gives it; NULL: not measured */
};

/* Measures the settings, or reads what an earlier call has measured. The evaluation has run.
 * ERR_INVALID if no model runs here, or with the run's sentence; ERR_CANCELLED. */
enum err tuning_run(struct evaluation *evaluation, struct error *error) MUST_CHECK;
/* The figures of `quern tune --json`, with the model; and each setting with
 *   "saving"  per size of a job (evaluation_jobs) seconds, watt hours and money, with the least and
 *             the most of the rounds for seconds; negative: it costs so much more. null for a
 *             setting that is not told apart from today's
 *   "effort"  {"kind": "restart" | "judge_again" | "unusable", "text": a sentence}
 * The caller owns the object; NULL if nothing was measured. */
json_t *tuning_json(const struct evaluation *evaluation);
void tuning_release(struct tuning *tuning);
