/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answer_match: whether two results of one request are the same.
 *
 * Equal results have the same status and body, but for members that are new in each answer: ids,
 * times, the fingerprint of the program, and usage, which counts tokens that a cache had. Results
 * mean the same if their values are equal (compare/result_line.h): the same JSON whatever its
 * spelling, the same choices of decisions whatever their probabilities.
 *
 * Thread: any; pure.
 * Memory: trees of both lines while they are compared. */

#include "base/err.h"
#include "base/str.h"

enum answer_match {
    ANSWER_BIT_EQUAL,
    ANSWER_SAME_MEANING,
    ANSWER_DIFFERS,
};

/* ERR_INVALID: one of the texts is no result. */
enum err answer_match(struct str one, struct str other, enum answer_match *ret_match,
                      struct error *error) MUST_CHECK;
