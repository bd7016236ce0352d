/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* choice: which model an evaluation speaks for, and why.
 *
 * A model passes if it answers about as many requests as the best does, keeps about as many shapes,
 * and agrees about as often with the reference. Of those that pass, the fastest is chosen. A
 * cascade takes part as a whole; its later models by themselves do not. Without a reference nothing
 * is known of what the answers are worth, and the reasons say so.
 *
 * Thread: any; pure.
 * Memory: the caller's struct. */

#include "evaluate/evaluation.h"

#define CHOICE_REASONS_MAX 6
#define CHOICE_REASON_BYTES 320
#define CHOICE_SHARE_SLACK 0.01     /* below the best, answered requests and shapes */
#define CHOICE_AGREEMENT_SLACK 0.02 /* below the best, agreement with the reference */

struct choice {
    size_t candidate; /* place; the evaluation's `count`: none can be chosen */
    char reasons[CHOICE_REASONS_MAX][CHOICE_REASON_BYTES];
    size_t reason_count;
};

struct choice choice_make(const struct evaluation *evaluation);
