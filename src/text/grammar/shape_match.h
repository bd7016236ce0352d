/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* shape_match: whether a finished text has a shape, for answers that quern did not hold to it.
 *
 * An automaton takes one spelling of a value: the order of the schema's names, little space, one
 * way to write a character. Other servers spell otherwise and are right all the same. So a text for
 * a schema is read as JSON, and the value is compared with the schema member by member, in any
 * order. Texts for the other kinds of shape are walked through their automaton, because there the
 * spelling is the shape.
 *
 * The match is "unknown" at a keyword that is not supported, for structural tags (schemas inside
 * literal text), and past a bound. It is never "no" for a text that has the shape.
 *
 * Thread: any.
 * Memory: the value's tree, up to 64 MiB, and the expressions of patterns (expr.h), for one call.
 */

#include "grammar/grammar.h"

enum shape_match { SHAPE_MATCH_NO, SHAPE_MATCH_UNKNOWN, SHAPE_MATCH_YES };

/* Fuel of all texts of one answer, in steps of expr.h: 50 ms of one core. An ordinary value takes
 * 50, so an answer may have 20,000 values. */
#define SHAPE_MATCH_FUEL 1000000u

/* Takes the work from *fuel; SHAPE_MATCH_UNKNOWN once none is left. */
enum shape_match shape_match_text(enum grammar_kind kind, const json_t *source, struct str text,
                                  uint32_t *fuel);
