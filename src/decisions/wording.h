/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wording: how a model is asked a question, and the labels that it answers with.
 *
 * PROMPT FORMAT 1. The prompt of a question is one user message: the state, a blank line, and the
 * block of the question:
 *
 *     Question: Which team?             only if the question has instructions
 *     A: "ops" - keeps servers alive    a choice's value is JSON; " - …" only with a description
 *     B: "data"
 *     Answer with the letter of one option only.
 *
 * A predicate's options are false and true, in this order. A score's options are the labels of its
 * levels, without quotes. The answer is the label of an option: A to Z, or two letters for a
 * question with more than 26 options. These are the words of vLLM's /v1/decisions, so that its
 * probabilities can be compared. Other words need another number.
 *
 * Thread: any.
 * Memory: appends to the caller's buf. */

#include "decisions/question.h"

#define WORDING_LETTERS 26u
#define WORDING_LAST_LINE "Answer with the letter of one option only."

/* The text of one label, with its NUL. */
struct label_text {
    char at[3];
};

/* Label `index` of a set of single letters, or of AA, AB, …, ZZ. */
struct label_text label_letter(uint32_t index);
struct label_text label_pair(uint32_t index);

/* Appends a question's block. `labels`: (question->option_count). */
void wording_write_question(struct buf *out, const struct question *question,
                            const struct label_text *labels);
