/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* shape_check: tells before a batch runs whether the shapes that its lines ask for can be held.
 *
 * Each distinct text of the fields is compiled once, and remembered by its hash. A compile is
 * bounded (expr.h); all compiles of one check together have a bound, too. Shapes past it are taken
 * unseen: the engine refuses them as it refuses a single request's. The bound counts work and not
 * time, so the same file is checked alike on every machine.
 *
 * Thread: one.
 * Memory: one grammar at a time; about 100 bytes per distinct shape and 1.2 KiB per distinct
 * refused one, of the last SHAPE_CHECK_KNOWN_MAX shapes. */

#include "grammar/asked_shape.h"

#define SHAPE_CHECK_KNOWN_MAX 8192u
/* Enough for 100,000 ordinary schemas, in 10 s to 20 s of one core. */
#define SHAPE_CHECK_WORK_MAX ((uint64_t)400 * 1000 * 1000)

struct shape_check;

/* `work_max`: the bound of all compiles, in expressions asked for and bytes read. */
struct shape_check *shape_check_open(uint64_t work_max);
void shape_check_close(struct shape_check *check); /* NULL is allowed */

/* `fields` is a JSON object with the fields of asked_shape.h, and with tools and tool_choice. False
 * and *ret_refusal, with a status of 400, if a field of asked_shape.h is wrong, or if a shape or
 * the arguments of a call that are held to a schema cannot be held. */
bool shape_check_take(struct shape_check *check, struct str fields, struct refusal *ret_refusal);

/* The same without a compile, for a worker that passes the fields on: false if a field is wrong or
 * spells a constraint that nobody reads. */
bool shape_check_read(struct shape_check *check, struct str fields, struct refusal *ret_refusal);

struct shape_check_stats {
    uint64_t asked;              /* lines with a shape, held arguments of calls included */
    uint64_t distinct;           /* shapes that were compiled */
    uint64_t refused;            /* shapes that were refused */
    uint64_t unseen;             /* lines past the bound of work */
    double seconds, seconds_max; /* all compiles together, and the longest */
    uint64_t bytes, bytes_max;   /* all grammars as compiled, and the largest */
};
struct shape_check_stats shape_check_stats(const struct shape_check *check);
