/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* grammar_set: the grammars that were compiled lately, so that each source is compiled once however
 * many lines ask for it. Sources that do not compile are remembered with their error.
 *
 * Thread: any; a lock is held while a grammar compiles.
 * Memory: GRAMMAR_SET_MAX grammars, the one that was not asked for longest goes first. While all
 *     grammars of the process, as they were compiled, take more than half of `bytes_max`, those go
 * that no answer holds, and then no new one is made. */

#include "grammar/grammar.h"

#define GRAMMAR_SET_MAX 256u

struct grammar_set;

struct grammar_set *grammar_set_open(size_t bytes_max);
void grammar_set_close(struct grammar_set *set); /* NULL is allowed */

/* The grammar of the source, with a hold for the caller. Errors as grammar_open; ERR_UNAVAILABLE
 * while the grammars in use take too much memory. */
enum err grammar_set_take(struct grammar_set *set, enum grammar_kind kind, const json_t *source,
                          struct grammar **ret_grammar, struct error *error) MUST_CHECK;
