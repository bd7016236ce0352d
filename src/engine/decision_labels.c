/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/decision_labels.h"

#include <string.h>

/* Most tokens of a tail. Templates end with a control token and a role; without a control token the
 * prompt's end alone tells how a letter is spelled. */
#define TAIL_TOKENS_MAX 64u
#define BREAK_TOKENS 2u
#define TAIL_BYTES_MAX ((size_t)64 * 1024)

struct search {
    const struct tokenizer *tokenizer;
    struct buf text;  /* the tail's, with its special token */
    struct ids plain; /* its tokens, encoded alone */
};

static bool is_special(const struct tokenizer *tokenizer, int32_t id) {
    enum token_kind kind = tokenizer_kind(tokenizer, id);
    return kind == TOKEN_CONTROL || kind == TOKEN_USER_DEFINED;
}

struct ids decision_labels_tail(const struct tokenizer *tokenizer, const struct ids *prompt,
                                const struct ids *other) {
    struct ids tail = {.at = NULL};
    size_t count = 0, shortest = prompt->count < other->count ? prompt->count : other->count;
    while (count < shortest &&
           prompt->at[prompt->count - count - 1] == other->at[other->count - count - 1])
        count++;
    /* The line break before the last line may be one token with what precedes it. */
    count = count > BREAK_TOKENS ? count - BREAK_TOKENS : 0;
    if (count > TAIL_TOKENS_MAX) count = TAIL_TOKENS_MAX;
    size_t first = prompt->count - count;
    for (size_t i = first; i < prompt->count; i++)
        if (is_special(tokenizer, prompt->at[i])) first = i;
    for (size_t i = first; i < prompt->count; i++) ids_add(&tail, prompt->at[i]);
    return tail;
}

static bool encode(const struct search *is, struct str text, struct ids *ids) {
    struct error error;
    ids->count = 0;
    return tokenizer_encode(is->tokenizer, text, (struct encode_options){.parse_special = true},
                            ids, &error) == OK;
}

/* The token that `more` adds behind the text, or TOKEN_NONE if that is not one token alone. */
static int32_t token_behind(struct search *is, const char *more, struct ids *scratch) {
    size_t bytes = is->text.bytes, count = is->plain.count;
    buf_add_text(&is->text, more);
    bool is_one =
        encode(is, buf_str(&is->text), scratch) && scratch->count == count + 1 &&
        (count == 0 || memcmp(scratch->at, is->plain.at, count * sizeof *scratch->at) == 0);
    buf_truncate(&is->text, bytes);
    return is_one && !is_special(is->tokenizer, scratch->at[count]) ? scratch->at[count]
                                                                    : TOKEN_NONE;
}

/* The token of a letter: behind the text, or else the one that spells it. */
static int32_t token_of_letter(struct search *is, const char *letter, struct ids *scratch) {
    int32_t token = token_behind(is, letter, scratch);
    if (token == TOKEN_NONE) token = tokenizer_find(is->tokenizer, str_from(letter));
    return token != TOKEN_NONE && is_special(is->tokenizer, token) ? TOKEN_NONE : token;
}

static bool holds(const int32_t *tokens, uint32_t count, int32_t token) {
    for (uint32_t i = 0; i < count; i++)
        if (tokens[i] == token) return true;
    return false;
}

/* Fills the tokens of all letters behind the text. */
static bool find_letters(struct search *is, int32_t tokens[WORDING_LETTERS],
                         struct refusal *refusal) {
    struct ids scratch = {.at = NULL};
    bool is_good = encode(is, buf_str(&is->text), &is->plain);
    for (uint32_t i = 0; i < WORDING_LETTERS && is_good; i++) {
        tokens[i] = token_of_letter(is, label_letter(i).at, &scratch);
        is_good = tokens[i] != TOKEN_NONE && !holds(tokens, i, tokens[i]);
    }
    ids_release(&scratch);
    return is_good ||
           refuse(
               refusal, "unsupported_model", "model",
               "This model cannot be asked questions: its vocabulary has no token of its own for "
               "each letter from A to Z.");
}

static void find_pairs(struct search *is, struct decision_labels *labels) {
    struct ids scratch = {.at = NULL};
    for (uint32_t i = 0; i < WORDING_LETTERS * WORDING_LETTERS; i++) {
        if (labels->pair_count == QUESTION_OPTIONS_MAX) break;
        struct label_text text = label_pair(i);
        int32_t token = token_behind(is, text.at, &scratch);
        if (token == TOKEN_NONE || holds(labels->pairs, labels->pair_count, token)) continue;
        labels->pair_texts[labels->pair_count] = text;
        labels->pairs[labels->pair_count++] = token;
    }
    ids_release(&scratch);
}

static bool find_seconds(struct search *is, struct decision_labels *labels,
                         struct refusal *refusal) {
    for (uint32_t i = 0; i < QUESTION_OPTIONS_MAX; i++) labels->two_texts[i] = label_pair(i);
    for (uint32_t i = 0; i < LABEL_FIRSTS_MAX; i++) {
        size_t bytes = is->text.bytes;
        buf_add_text(&is->text, label_letter(i).at);
        bool is_good = find_letters(is, labels->seconds[i], refusal);
        buf_truncate(&is->text, bytes);
        if (!is_good) return false;
    }
    return true;
}

bool decision_labels_find(struct decision_labels *ret_labels, const struct tokenizer *tokenizer,
                          const struct ids *tail, bool needs_pairs, struct refusal *ret_refusal) {
    struct search is = {.tokenizer = tokenizer};
    *ret_labels = (struct decision_labels){.has_pairs = needs_pairs};
    buf_init(&is.text, TAIL_BYTES_MAX);
    for (size_t i = 0; i < tail->count; i++)
        tokenizer_decode(tokenizer, tail->at[i], true, &is.text);
    for (uint32_t i = 0; i < WORDING_LETTERS; i++) ret_labels->letter_texts[i] = label_letter(i);
    bool is_good = find_letters(&is, ret_labels->letters, ret_refusal);
    if (is_good && needs_pairs) {
        find_pairs(&is, ret_labels);
        is_good = find_seconds(&is, ret_labels, ret_refusal);
    }
    ids_release(&is.plain);
    buf_release(&is.text);
    return is_good;
}

bool decision_labels_are_two(const struct decision_labels *labels, uint32_t option_count) {
    return option_count > WORDING_LETTERS && option_count > labels->pair_count;
}

const struct label_text *decision_labels_texts(const struct decision_labels *labels,
                                               uint32_t option_count) {
    if (option_count <= WORDING_LETTERS) return labels->letter_texts;
    return option_count <= labels->pair_count ? labels->pair_texts : labels->two_texts;
}
