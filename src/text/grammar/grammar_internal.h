/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* grammar_internal: the struct behind grammar.h, for grammar.c and grammar_mask.c only.
 *
 * Thread: as grammar.h.
 * Memory: as grammar.h. */

#include "grammar/expr.h"
#include "grammar/grammar.h"

#include <stdatomic.h>

struct grammar {
    atomic_uint holds;
    uint64_t id; /* no two grammars of a process have one */
    uint32_t start;
    size_t sealed_bytes; /* when it was compiled */
    size_t bytes;        /* when it was last counted; under the lock of all grammars */
    uint64_t used_at;    /* number of the last count; under the same lock */
    uint32_t epoch;      /* number of times that the automaton was forgotten */
    struct exprs exprs;
    struct grammar *next, **link; /* in the list of all grammars; under its lock */
};

/* What a compile costs: expressions asked for, and bytes that the sealed part takes. */
struct grammar_cost {
    uint64_t work;
    uint64_t bytes;
};

/* Compiles a source and forgets it; errors as grammar_open. Adds to *cost; a source that does not
 * compile adds no bytes. */
enum err grammar_try(enum grammar_kind kind, const json_t *source, struct grammar_cost *cost,
                     struct error *error) MUST_CHECK;

/* Gives the automaton the fuel of `steps` steps, once per question. */
void grammar_refuel(struct grammar_state *state, size_t steps);
/* Reads the text again if the automaton was forgotten since. False if that goes over a limit. */
bool grammar_state_renew(struct grammar_state *state);
/* After an overflow. True: the question may be asked once more, of the automaton as it was sealed.
 * False: it took more work than a step may. The automaton is sound then, and what it has grown by
 * is kept. */
bool grammar_state_retry(struct grammar_state *state);
/* Forgets the automaton, as all states will find out. */
void grammar_forget(struct grammar *grammar);

/* The memory of all grammars of the process, as they were when they were compiled. */
size_t grammar_sealed_bytes(void);
/* The same, as they were when they were counted last. */
size_t grammar_bytes_in_use(void);
/* Counts a grammar that may have grown. While all grammars take more than `bytes_max`, the one that
 * was not counted for longest is forgotten. For the thread that steps automata. */
void grammar_count(struct grammar *grammar, size_t bytes_max);
