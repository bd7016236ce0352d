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

/* The token of a label: behind the text, or else the one that spells it. */
static int32_t token_of(struct search *is, const char *label, struct ids *scratch) {
    int32_t token = token_behind(is, label, scratch);
    if (token == TOKEN_NONE) token = tokenizer_find(is->tokenizer, str_from(label));
    return token != TOKEN_NONE && is_special(is->tokenizer, token) ? TOKEN_NONE : token;
}

static bool holds(const int32_t *tokens, uint32_t count, int32_t token) {
    for (uint32_t i = 0; i < count; i++)
        if (tokens[i] == token) return true;
    return false;
}

/* Fills the tokens of all labels of a set behind the text; `what` names them in a refusal. */
static bool find_set(struct search *is, const struct label_text *texts, uint32_t count,
                     int32_t *tokens, const char *what, struct refusal *refusal) {
    struct ids scratch = {.at = NULL};
    bool is_good = encode(is, buf_str(&is->text), &is->plain);
    for (uint32_t i = 0; i < count && is_good; i++) {
        tokens[i] = token_of(is, texts[i].at, &scratch);
        is_good = tokens[i] != TOKEN_NONE && !holds(tokens, i, tokens[i]);
    }
    ids_release(&scratch);
    return is_good || refuse(refusal, "unsupported_model", "model",
                             "This model cannot be asked questions: its vocabulary has no token of "
                             "its own for each %s.",
                             what);
}

static bool find_letters(struct search *is, const struct label_text *texts, int32_t *tokens,
                         struct refusal *refusal) {
    return find_set(is, texts, WORDING_LETTERS, tokens, "letter from A to Z", refusal);
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
        bool is_good = find_letters(is, labels->letter_texts, labels->seconds[i], refusal);
        buf_truncate(&is->text, bytes);
        if (!is_good) return false;
    }
    return true;
}

static bool find(struct search *is, struct decision_labels *labels, enum label_set set,
                 bool needs_pairs, struct refusal *refusal) {
    if (set == LABELS_DIGITS) {
        for (uint32_t i = 0; i < WORDING_DIGITS; i++) labels->digit_texts[i] = label_digit(i);
        return find_set(is, labels->digit_texts, WORDING_DIGITS, labels->digits, "digit", refusal);
    }
    if (set == LABELS_WORDS) {
        for (uint32_t i = 0; i < WORDING_WORDS; i++) labels->word_texts[i] = label_word(i);
        return find_set(is, labels->word_texts, WORDING_WORDS, labels->words,
                        "of the words yes and no", refusal);
    }
    for (uint32_t i = 0; i < WORDING_LETTERS; i++) labels->letter_texts[i] = label_letter(i);
    if (!find_letters(is, labels->letter_texts, labels->letters, refusal)) return false;
    if (!needs_pairs) return true;
    find_pairs(is, labels);
    return find_seconds(is, labels, refusal);
}

bool decision_labels_find(struct decision_labels *labels, const struct tokenizer *tokenizer,
                          enum label_set set, const struct ids *tail, bool needs_pairs,
                          struct refusal *ret_refusal) {
    struct search is = {.tokenizer = tokenizer};
    buf_init(&is.text, TAIL_BYTES_MAX);
    for (size_t i = 0; i < tail->count; i++)
        tokenizer_decode(tokenizer, tail->at[i], true, &is.text);
    bool is_good = find(&is, labels, set, needs_pairs, ret_refusal);
    ids_release(&is.plain);
    buf_release(&is.text);
    return is_good;
}

bool decision_labels_are_two(const struct decision_labels *labels,
                             const struct question *question) {
    return question->option_count > WORDING_LETTERS && question->option_count > labels->pair_count;
}

const struct label_text *decision_labels_texts(const struct decision_labels *labels,
                                               const struct question *question) {
    if (question->labels == LABELS_DIGITS) return labels->digit_texts;
    if (question->labels == LABELS_WORDS) return labels->word_texts;
    if (question->option_count <= WORDING_LETTERS) return labels->letter_texts;
    return decision_labels_are_two(labels, question) ? labels->two_texts : labels->pair_texts;
}

const int32_t *decision_labels_tokens(const struct decision_labels *labels,
                                      const struct question *question) {
    if (question->labels == LABELS_DIGITS) return labels->digits;
    if (question->labels == LABELS_WORDS) return labels->words;
    return question->option_count <= WORDING_LETTERS ? labels->letters : labels->pairs;
}
