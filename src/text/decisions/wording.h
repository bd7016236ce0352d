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
 * question with more than 26 options.
 *
 * A question of /v1/systemone has other labels by its type, and the texts of its options raw:
 *
 *     A: ops - keeps servers alive      choice; the last line is the same
 *
 *     0: weak                           score of at most 10 levels
 *     Answer with the number of one level only.
 *
 *     yes: some days at home            predicate; ": …" only with a description
 *     no
 *     Answer with yes or no only.
 *
 * These are the words of vLLM's two routes, so that its probabilities can be compared. Other words
 * need another number (DECISION_PROMPT_FORMAT).
 *
 * Thread: any.
 * Memory: appends to the caller's buf. */

#include "decisions/question.h"

#define WORDING_LETTERS 26u
#define WORDING_DIGITS 10u
#define WORDING_WORDS 2u

/* The text of one label, with its NUL. */
struct label_text {
    char at[4];
};

/* The last line of a block, without a line break. */
extern const char *const wording_last_lines[LABEL_SETS];

/* Label `index` of a set of single letters, or of AA, AB, …, ZZ. */
struct label_text label_letter(uint32_t index);
struct label_text label_pair(uint32_t index);
/* "0" to "9"; "no" and "yes". */
struct label_text label_digit(uint32_t index);
struct label_text label_word(uint32_t index);

/* Appends a question's block. `labels`: (question->option_count). */
void wording_write_question(struct buf *out, const struct question *question,
                            const struct label_text *labels);
