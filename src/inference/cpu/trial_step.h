/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* trial_step: the first layers of steps of made-up texts, for trials (cpu/step_trials.h).
 *
 * Every text has 64 rows, whatever the rows of the step, so that each row reads as many keys. The
 * layers that are computed take about a sixteenth of the trials' time with the most rows. It writes
 * the first pages of the KV cache and the first states, which no sequence has at that time.
 *
 * Thread: that of the forward, before its first step.
 * Memory: the arrays of one step. */

#include "cpu/forward.h"

#include <stdbool.h>

struct trial_step;

/* NULL if the cache has fewer pages, or fewer places for states, than a step of `rows_max` rows
 * wants, or if the model is a toy or a layer of it takes too long. */
struct trial_step *trial_step_open(struct forward *forward, const struct forward_options *options);
/* Computes the layers for `rows` rows, a multiple of 64. Returns ns of the process's processor
 * time. */
int64_t trial_step_run(void *self, uint32_t rows);
void trial_step_close(struct trial_step *trial); /* NULL is allowed */
