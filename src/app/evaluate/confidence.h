/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* confidence: how sure a model was of its answer, 0 to 1, by its result line alone.
 *
 *   decisions         the least of its questions: the `confidence` of a choice or a score, and
 *                     |2p - 1| of a predicate with the probability p, which is the formula of a
 *                     choice between two options (decisions/answer.h)
 *   several answers   the share of choices that say what most of them say (a request with n)
 *   another answer    not known
 *
 * Two choices say the same if their texts are equal, or their values where both are JSON; calls if
 * their functions and arguments are. Reasoning and ids do not count.
 *
 * Thread: any; pure.
 * Memory: a tree of the line while it is read. */

#include "base/err.h"
#include "base/str.h"

/* NAN: not known, as of a line that is not answered. ERR_INVALID for a text that is no result. */
enum err confidence_of(struct str result, bool *ret_is_answered, double *ret_confidence,
                       struct error *error) MUST_CHECK;
