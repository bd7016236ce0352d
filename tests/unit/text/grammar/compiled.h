/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* compiled: grammars of tests from JSON text, and what they make of a text. */

#include "grammar/grammar.h"
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

static inline json_t *value_of(const char *text) {
    struct error error;
    json_t *value;
    if (json_read(&value, str_from(text), &error) != OK) abort();
    return value;
}

/* NULL with the error for a source that does not compile. */
static inline struct grammar *compiled(enum grammar_kind kind, const json_t *source,
                                       struct error *error) {
    struct grammar *grammar;
    return grammar_open(&grammar, kind, source, error) == OK ? grammar : NULL;
}

/* The same for a source that is a text. */
static inline struct grammar *compiled_text(enum grammar_kind kind, const char *text,
                                            struct error *error) {
    json_t *source = json_string(text);
    struct grammar *grammar = compiled(kind, source, error);
    json_decref(source);
    return grammar;
}

/* Whether the text is a whole one. */
static inline bool takes(struct grammar *grammar, struct str text) {
    struct grammar_state state;
    grammar_state_init(&state, grammar);
    bool is_taken = grammar_accept(&state, text) == GRAMMAR_ACCEPTED && grammar_can_end(&state);
    grammar_state_release(&state);
    return is_taken;
}
