/* SPDX-License-Identifier: Apache-2.0 */

/* Masks of hostile grammars, against a look at each token by itself. The vocabulary has all bytes,
 * short and long words that are plain, and pieces of characters. */

#include "grammar/grammar_internal.h"
#include "grammar/grammar_mask.h"
#include "json/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORDS 24
#define END_TOKEN 0
#define FIRST_BYTE 1
#define FIRST_WORD (FIRST_BYTE + 256)
#define TOKENS (FIRST_WORD + WORDS)
#define STEPS_MAX 12

static const char *const words[WORDS] = {
    "aaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaa\"",
    "ab",
    "abcabcabc",
    "abcabcabcabcabcabcabcabc",
    "0000000000000000000000",
    "10",
    "1.5",
    "true",
    "null",
    "\",\"",
    "\":",
    "\":\"",
    "{\"",
    "\"}",
    "}}",
    "[[",
    "],",
    "\xc3\xa9\xc3\xa9",
    "\xe2\x82",
    "a\xf0\x9f",
    "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xbd\xa0\xe5\xa5\xbd",
    "\xed\xa0\x80",
    "a\\n",
};

static char bytes[256];

static void make_tokens(struct str tokens[TOKENS]) {
    tokens[END_TOKEN] = (struct str){NULL, 0};
    for (unsigned i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[FIRST_BYTE + i] = (struct str){&bytes[i], 1};
    }
    for (unsigned i = 0; i < WORDS; i++) tokens[FIRST_WORD + i] = str_from(words[i]);
}

/* Whether the token may come; -1 where the automaton would be too large. */
static int may_come(struct grammar_state *state, struct str token) {
    struct grammar_state copy;
    enum grammar_answer answer;
    grammar_state_init(&copy, state->grammar);
    answer = grammar_accept(&copy, buf_str(&state->text));
    if (answer == GRAMMAR_ACCEPTED) answer = grammar_accept(&copy, token);
    grammar_state_release(&copy);
    return answer == GRAMMAR_LOST ? -1 : answer == GRAMMAR_ACCEPTED;
}

static void check(const struct str *tokens, struct grammar_state *state, const uint32_t *mask) {
    uint32_t copy[(TOKENS + 31) / 32];
    memcpy(copy, mask, sizeof copy);
    for (unsigned i = FIRST_BYTE; i < TOKENS; i++) {
        int is_good = may_come(state, tokens[i]);
        assert(is_good < 0 || is_good == (int)(copy[i / 32] >> (i % 32) & 1));
    }
    assert(grammar_can_end(state) == (bool)(copy[END_TOKEN / 32] >> END_TOKEN & 1) ||
           state->is_spent);
}

static void walk(struct grammar *grammar, struct str choices) {
    static const int32_t ends[] = {END_TOKEN};
    struct str tokens[TOKENS];
    struct grammar_state state;
    const uint32_t *mask;
    make_tokens(tokens);
    struct grammar_masks *masks = grammar_masks_open(
        &(struct grammar_masks_options){tokens, TOKENS, ends, 1, TOKENS, 4, GRAMMAR_BYTES_MAX});
    grammar_state_init(&state, grammar);
    for (size_t i = 0; i < STEPS_MAX && (mask = grammar_mask(masks, &state)); i++) {
        check(tokens, &state, mask);
        mask = grammar_mask(masks, &state);
        if (!mask) break;
        unsigned token = i < choices.bytes ? (unsigned char)choices.at[i] : FIRST_WORD;
        for (unsigned k = 0; k < TOKENS && !(mask[token / 32] >> (token % 32) & 1); k++)
            token = (token + 1) % TOKENS;
        if (token == END_TOKEN) break;
        if (grammar_accept(&state, tokens[token]) != GRAMMAR_ACCEPTED) break;
    }
    assert(grammar_mask_stats(masks).work_max <= GRAMMAR_STEP_FUEL);
    grammar_state_release(&state);
    grammar_masks_close(masks);
}

/* The first byte chooses the kind; then the source, a NUL, and the choices: as fuzz_grammar. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const enum grammar_kind kinds[] = {GRAMMAR_REGEX, GRAMMAR_SCHEMA, GRAMMAR_TAGS,
                                              GRAMMAR_EBNF};
    if (size == 0) return 0;
    char *text = malloc(size);
    if (!text) abort();
    memcpy(text, data + 1, size - 1);
    struct str all = {text, size - 1}, source = all, choices = {NULL, 0};
    size_t end = str_find_byte(all, '\0', 0);
    if (end != SIZE_MAX) {
        source.bytes = end;
        choices = str_skip(all, end + 1);
    }
    enum grammar_kind kind = kinds[data[0] & 3];
    bool is_text = kind == GRAMMAR_REGEX || kind == GRAMMAR_EBNF;
    json_t *value = NULL;
    struct error error;
    struct grammar *grammar;
    if (!is_text && json_read(&value, source, &error) != OK) value = NULL;
    if (is_text) value = json_stringn(source.bytes ? source.at : "", source.bytes);
    if (value && grammar_open(&grammar, kind, value, &error) == OK) {
        walk(grammar, choices);
        grammar_drop(grammar);
    }
    json_decref(value);
    free(text);
    return 0;
}
