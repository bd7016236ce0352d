/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* draft_model: a small model that guesses the next tokens of a sequence, for a larger one to check
 * (speculative decoding, Leviathan et al. 2023): scheduler_guess_fn over a backend.
 *
 * It keeps the keys of the few sequences that were asked about last. Of a sequence that went on
 * otherwise than it guessed it forgets the rest, and computes what it does not know: of a long
 * prompt a part per call, so that no step waits long. Then it takes its likeliest token, again and
 * again, until it is less sure than CERTAINTY_MIN. It knows no request and no vocabulary.
 *
 * Thread: that of the scheduler which it guesses for.
 * Memory: the tokens of each place, and page tables; the backend is the caller's.
 * Invariant: a place's pages hold the keys of its first `count` tokens, in this order. */

#include "scheduler/scheduler.h"

struct draft_model;

/* ERR_INVALID for a backend that cannot take guesses back: with states, or with two steps under
 * way; ERR_LIMIT where its pages hold no sequence. `backend` outlives it, and nobody else submits
 * steps there. */
enum err draft_model_open(struct draft_model **ret_model, const struct backend *backend,
                          struct error *error) MUST_CHECK;
void draft_model_close(struct draft_model *model); /* NULL is allowed */
/* A scheduler_guess_fn. After an error of the backend it guesses nothing more. */
void draft_model_guess(void *draft_model, struct scheduler_guess *guess);
