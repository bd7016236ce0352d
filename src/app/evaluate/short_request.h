/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* short_request: a request that computes no more than one numeric field of its answer needs, and
 * the largest value that the field can have.
 *
 *   decisions          the question of the field alone: questions do not know of each other
 *   a JSON schema      the answer ends before the member behind the field, where the field is the
 *                      schema's first member: nothing but its number comes before that
 *   another request    none, nor of a request with several answers or with stop strings
 *
 * A request that samples without a seed has no short form, since its whole would have another
 * answer. What a short form answers is a part of what the whole one answers.
 *
 * Thread: any; pure.
 * Memory: a tree of the line while it is read. */

#include "base/buf.h"
#include "compare/result_line.h"

/* Appends the short form of a line to `out`; false without one. `ret_bound` is the largest value
 * that a JSON schema allows the field, INFINITY without one; a decision's mean nearly never reaches
 * its largest level. Another server's answer is refused if it does not match its schema, so only
 * decisions are short there. */
bool short_request_write(struct buf *out, struct str line, const char *field, bool is_remote,
                         double *ret_bound);
/* The field of an answer, whole or short; NAN if it has none that is a number. ERR_INVALID for a
 * text that is no result. */
enum err short_request_read(struct str result, const char *field, bool is_short, double *ret_value,
                            struct result_usage *ret_usage, struct error *error) MUST_CHECK;
