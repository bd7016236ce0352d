/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* drafts: the next tokens of a sequence, guessed from its own text, and checked by the model in the
 * step that samples the first of them (prompt lookup, or n-gram speculation).
 *
 * Where the last tokens of a text stand in it a second time, those behind the earlier place are the
 * guess. The sequence's next step has a row for each of them, next to the row of its last token,
 * and samples every row. A row whose token proves right has given the next token as well. The first
 * wrong one ends this: what was sampled behind it is thrown away, and its place in the cache is
 * written again. So a step may bring several tokens of a sequence, and none that sampling one by
 * one would not bring: a row depends on the tokens before it, its seed and its number alone.
 *
 * A row costs time, too. How likely a guess is right is learned per sequence, by the number of
 * tokens that both places have in common; a guess that no row checks teaches as well. drafts_choose
 * (state.h) takes as many rows as bring the most tokens per time (step_costs.h).
 *
 * With scheduler_options.guess a smaller model may guess instead (guesses.c), where at most
 * SCHEDULER_GUESSED_MAX sequences are in decode: a single chat gains most, and a guess costs a step
 * of that model per token.
 *
 * Thread: the scheduler's only.
 * Memory: plain structs. */

#include "scheduler/request.h"

#define DRAFT_TOKENS_MAX SCHEDULER_DRAFT_TOKENS_MAX /* tokens guessed for a sequence in a step */
/* Running sequences with which steps have drafts: with more, rows cost what they bring. */
#define DRAFT_SEQUENCES_MAX 32u

/* The guess for one sequence in decode, in one step. */
struct draft {
    struct sequence *sequence;
    uint32_t length;    /* from the text: tokens that both places have in common; 0: no guess */
    uint32_t found;     /* tokens of the guess */
    uint32_t count;     /* leading tokens of it that have rows */
    bool is_from_model; /* guessed by a small model (guesses.c), not found in the text */
    int32_t tokens[DRAFT_TOKENS_MAX];
    uint8_t certainty[DRAFT_TOKENS_MAX];       /* how sure the model is of each, in 1/255 */
    const uint32_t *allowed[DRAFT_TOKENS_MAX]; /* tokens that may come behind each; NULL: all */
};

/* Guesses at most `room` tokens from the text. */
void draft_find(struct draft *ret_draft, struct sequence *sequence, uint32_t room);
/* The chance, 0..1, that token `index` of a draft is right when all tokens before it are. */
double draft_chance(const struct draft *draft, uint32_t index);
/* Compares the guess with the tokens of the sequence, which follow its first `known` ones. */
void draft_learn(const struct draft *draft, uint32_t known);
