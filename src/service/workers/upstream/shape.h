/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_shape: whether the answer of an upstream has the shape that its request asked for.
 *
 * An upstream gets the fields of the shape as the client wrote them. Some servers ignore them, or
 * parts of them, and answer 200 all the same. So an answer is compared with its shape
 * (grammar/shape_match.h).
 *
 * Thread: any; pure.
 * Memory: the trees of the fields and of one choice during a call. */

#include "base/buf.h"
#include "json/envelope.h"
#include "protocol/request.h"

/* Whether the constraints of a request can be read, so that its answer can be compared with them.
 * False, and *ret_refusal with status 400, for one in a spelling that nobody reads, which the
 * upstream would ignore in silence. */
bool upstream_shape_check(struct str request, struct refusal *ret_refusal);

/* Looks at all choices of the answer, a whole 2xx: SHAPE_MISMATCHED if one has another form, else
 * SHAPE_TRUNCATED if one ended with `length`, else SHAPE_UNCHECKED if one cannot be judged (it
 * calls tools or refuses, or the shape is of a kind or has a keyword that is not known), else
 * SHAPE_VALID. SHAPE_NONE if the request asks for no shape. Calls that were asked for otherwise are
 * SHAPE_MISMATCHED, too (calls.h). *ret_param: the field that asks. */
enum shape_end upstream_shape_look(struct str request, struct str answer, const char **ret_param);
/* Writes the error of an answer that has another form, with the answer as its member `answer`. */
void upstream_shape_write_error(struct buf *buf, struct str answer, const char *param,
                                const char *name);
