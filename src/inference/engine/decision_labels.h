/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* decision_labels: the tokens with which a model begins its answer to a question.
 *
 * A label is a letter, a digit, a word (yes, no), or a pair of letters for more than 26 options.
 * Its token is the one that encoding adds behind the end of the prompt, since tokenizers spell a
 * letter differently behind a space. Where encoding adds no such token, the token whose text is the
 * label stands for it. Pairs of one token are preferred. A question with more options than the
 * vocabulary has such pairs has labels of two tokens, a letter each.
 *
 * Thread: any.
 * Memory: a plain struct, 16 KiB. Zero is a valid start: no labels.
 * Invariant: the tokens of one list differ. */

#include "decisions/wording.h"
#include "engine/served_model.h"
#include "json/refusal.h"

#define LABEL_FIRSTS_MAX 10u /* first letters of QUESTION_OPTIONS_MAX pairs */

struct decision_labels {
    int32_t letters[WORDING_LETTERS], digits[WORDING_DIGITS], words[WORDING_WORDS];
    struct label_text letter_texts[WORDING_LETTERS], digit_texts[WORDING_DIGITS],
        word_texts[WORDING_WORDS];

    /* Filled if a question needs pairs. */
    /* The first pairs of one token, in the order of the alphabet. */
    int32_t pairs[QUESTION_OPTIONS_MAX]; /* (pair_count) */
    struct label_text pair_texts[QUESTION_OPTIONS_MAX];
    uint32_t pair_count;
    /* Pairs of two tokens: those of the second letter behind each first one, AA to AZ and so on. */
    int32_t seconds[LABEL_FIRSTS_MAX][WORDING_LETTERS];
    struct label_text two_texts[QUESTION_OPTIONS_MAX];
};

/* The end that two prompts share whose texts differ before their last line, from its last special
 * token on if it has one: all that the labels depend on. */
struct ids decision_labels_tail(const struct tokenizer *tokenizer, const struct ids *prompt,
                                const struct ids *other);
/* Adds the tokens of the labels of a set behind a tail. False, and *ret_refusal, if the vocabulary
 * has no token for one. */
bool decision_labels_find(struct decision_labels *labels, const struct tokenizer *tokenizer,
                          enum label_set set, const struct ids *tail, bool needs_pairs,
                          struct refusal *ret_refusal) MUST_CHECK;

/* The texts of the labels of a question: (question->option_count). */
const struct label_text *decision_labels_texts(const struct decision_labels *labels,
                                               const struct question *question);
/* Their tokens, unless they have two. */
const int32_t *decision_labels_tokens(const struct decision_labels *labels,
                                      const struct question *question);
/* True if the labels of the question have two tokens. */
bool decision_labels_are_two(const struct decision_labels *labels, const struct question *question);
