/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/shape_match.h"
#include "json/json.h"
#include "plain_schema.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whether the automaton of the shape takes the whole text; false also where it cannot tell. */
static bool is_accepted(enum grammar_kind kind, const json_t *source, struct str text) {
    struct grammar *grammar;
    struct grammar_state state;
    struct error error;
    if (grammar_open(&grammar, kind, source, &error) != OK) return false;
    grammar_state_init(&state, grammar);
    bool is_taken = grammar_accept(&state, text) == GRAMMAR_ACCEPTED && grammar_can_end(&state);
    grammar_state_release(&state);
    grammar_drop(grammar);
    return is_taken;
}

/* The match never contradicts the automaton, nor a plain validator, and never gains fuel. */
static void check(enum grammar_kind kind, const json_t *source, struct str text) {
    uint32_t fuel = SHAPE_MATCH_FUEL;
    enum shape_match match = shape_match_text(kind, source, text, &fuel);
    assert(fuel <= SHAPE_MATCH_FUEL);
    if (match == SHAPE_MATCH_NO) assert(!is_accepted(kind, source, text));
    /* With less fuel the match is the same, or unknown. */
    uint32_t less = (SHAPE_MATCH_FUEL - fuel) / 2;
    enum shape_match hasty = shape_match_text(kind, source, text, &less);
    assert(hasty == match || hasty == SHAPE_MATCH_UNKNOWN);
    json_t *value;
    struct error error;
    if (kind != GRAMMAR_SCHEMA || match != SHAPE_MATCH_YES) return;
    assert(json_read(&value, text, &error) == OK);
    assert(plain_is_kept(source, source, value, 0));
    json_decref(value);
}

/* The first byte chooses the kind; then the source, a NUL, and the text. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const enum grammar_kind kinds[] = {GRAMMAR_SCHEMA, GRAMMAR_REGEX, GRAMMAR_CHOICE,
                                              GRAMMAR_EBNF};
    if (size == 0) return 0;
    char *bytes = malloc(size);
    if (!bytes) abort();
    memcpy(bytes, data + 1, size - 1);
    struct str source = {bytes, size - 1}, text = {bytes, 0};
    size_t end = str_find_byte(source, '\0', 0);
    if (end != SIZE_MAX) {
        text = str_skip(source, end + 1);
        source.bytes = end;
    }
    enum grammar_kind kind = kinds[data[0] & 3];
    bool is_text = kind == GRAMMAR_REGEX || kind == GRAMMAR_EBNF;
    json_t *value = NULL;
    struct error error;
    if (is_text)
        value = json_stringn(source.bytes ? source.at : "", source.bytes);
    else if (json_read(&value, source, &error) != OK)
        value = NULL;
    if (value) check(kind, value, text);
    json_decref(value);
    free(bytes);
    return 0;
}
