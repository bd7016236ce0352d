/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "grammar/grammar.h"
#include "json/json.h"
#include "plain_schema.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT_BYTES_MAX 300

/* The next byte that the state takes, from `first` on; -1 if it takes none. */
static int take_byte(struct grammar_state *state, unsigned first) {
    for (unsigned i = 0; i < 256; i++) {
        char byte = (char)(first + i);
        enum grammar_answer answer = grammar_accept(state, (struct str){&byte, 1});
        if (answer == GRAMMAR_ACCEPTED) return (unsigned char)byte;
        if (answer == GRAMMAR_LOST) return -2;
    }
    return -1;
}

/* A text that the choices lead to: from every state it can go on or end, and a whole text of a
 * schema, which is NULL for other grammars, is JSON that a plain validator takes. */
static void walk(struct grammar *grammar, const json_t *schema, struct str choices) {
    struct grammar_state state;
    int byte = 0;
    grammar_state_init(&state, grammar);
    for (size_t i = 0; i < TEXT_BYTES_MAX && byte >= 0; i++) {
        unsigned first = i < choices.bytes ? (unsigned char)choices.at[i] : (unsigned)i * 37;
        bool can_end = grammar_can_end(&state);
        if (can_end && schema) {
            json_t *value;
            struct error error;
            struct str text = buf_str(&state.text);
            enum err err = json_read(&value, text, &error);
            assert(utf8_is_valid(text) && (err == OK || strstr(error.text, "deeper")));
            assert(err != OK || plain_is_kept(schema, schema, value, 0));
            if (err == OK) json_decref(value);
        }
        byte = take_byte(&state, first);
        assert(byte != -1 || can_end);
    }
    grammar_state_release(&state);
}

/* The first byte chooses the kind; then the source, a NUL, and the choices. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    char *bytes = malloc(size);
    if (!bytes) abort();
    memcpy(bytes, data + 1, size - 1);
    struct str all = {bytes, size - 1}, source = all, choices = {NULL, 0};
    size_t end = str_find_byte(all, '\0', 0);
    if (end != SIZE_MAX) {
        source.bytes = end;
        choices = str_skip(all, end + 1);
    }
    static const enum grammar_kind kinds[] = {GRAMMAR_REGEX, GRAMMAR_SCHEMA, GRAMMAR_TAGS,
                                              GRAMMAR_EBNF};
    enum grammar_kind kind = kinds[data[0] & 3];
    json_t *value = NULL;
    struct error error;
    struct grammar *grammar;
    bool is_text = kind == GRAMMAR_REGEX || kind == GRAMMAR_EBNF;
    if (!is_text && json_read(&value, source, &error) != OK) value = NULL;
    if (is_text) value = json_stringn(source.bytes ? source.at : "", source.bytes);
    if (value && grammar_open(&grammar, kind, value, &error) == OK) {
        walk(grammar, kind == GRAMMAR_SCHEMA ? value : NULL, choices);
        grammar_drop(grammar);
    }
    json_decref(value);
    free(bytes);
    return 0;
}
