/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* grammar: the texts that an answer may be, as an automaton over bytes with a stack.
 *
 * A grammar is compiled once and shared by all answers that are held to it. Each answer has a
 * grammar_state. The automaton's states are made when they are needed and forgotten when they are
 * too many; a state then reads its text again. It knows no tokens: grammar_mask.h does.
 *
 * Thread: any thread compiles, holds and drops. Everything else changes the shared automaton: one
 *     thread does it for all grammars, the engine's loop.
 * Memory: a grammar takes at most 64 MiB, and all grammars of a process GRAMMAR_BYTES_MAX together:
 *     half of it when they are compiled (grammar_set.h); what they grow by is forgotten when it is
 *     too much (grammar_mask.h). grammar_drop by the last holder frees a grammar.
 * Invariant: from every state but GRAMMAR_NONE at least one whole text can be reached. */

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>

#define GRAMMAR_BYTES_MAX ((size_t)384 << 20)
/* The fuel (expr.h) of one mask or one token, about 10 ms of one core at most: the engine makes no
 * step in this time. */
#define GRAMMAR_STEP_FUEL 400000u

struct grammar;

enum grammar_kind {
    GRAMMAR_SCHEMA, /* an object or a boolean: a JSON Schema */
    GRAMMAR_REGEX,  /* a string: the whole text matches */
    GRAMMAR_CHOICE, /* an array of strings: the text is one of them */
    GRAMMAR_EBNF,   /* a string: rules (ebnf.h) */
    GRAMMAR_TAGS,   /* an object, a format of tags.h: schemas and literal texts put together */
};

/* Compiles a grammar with one hold. ERR_INVALID, naming the part, for a source that is wrong, not
 * supported or allows no text; ERR_LIMIT for one that is too large. */
enum err grammar_open(struct grammar **ret_grammar, enum grammar_kind kind, const json_t *source,
                      struct error *error) MUST_CHECK;
struct grammar *grammar_hold(struct grammar *grammar); /* returns it */
void grammar_drop(struct grammar *grammar);            /* NULL is allowed */

/* A place in the text of one answer. All zero has no grammar. */
struct grammar_state {
    struct grammar *grammar; /* held */
    uint32_t state;
    uint32_t epoch;  /* epoch of the automaton, in which the number `state` was given */
    bool is_spent;   /* the last question took more work than a step may; it may be asked again */
    struct buf text; /* all bytes so far */
};

void grammar_state_init(struct grammar_state *state, struct grammar *grammar);
/* Another place in the text, from which `from` does not move. */
void grammar_state_copy(struct grammar_state *ret_state, const struct grammar_state *from);
void grammar_state_release(struct grammar_state *state);

enum grammar_answer {
    GRAMMAR_ACCEPTED,
    GRAMMAR_REFUSED, /* no text of the grammar goes on so; the state stays as it was */
    GRAMMAR_LOST,    /* the automaton would be larger than its limit, or the state is spent */
};

/* `bytes` are a token's; more than TOKEN_BYTES_MAX may take the work of as many steps as they are
 * tokens of that length. */
enum grammar_answer grammar_accept(struct grammar_state *state, struct str bytes);
/* Appends the bytes that every text goes on with, at most `bytes_max`; none where it may end. */
void grammar_forced(struct grammar_state *state, size_t bytes_max, struct buf *buf);
/* True if the text so far is a whole one. */
bool grammar_can_end(struct grammar_state *state);
