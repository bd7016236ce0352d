/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_calls: whether the calls of an answer are those that its request asked for: forced by
 * tool_choice, one at most, of the allowed tools, and with arguments that keep a strict tool's
 * schema.
 *
 * Thread: any; pure.
 * Memory: the tree of the request's tools during a call. */

#include "base/str.h"
#include "protocol/request.h"

/* Looks at all choices of a chat's answer, a whole 2xx. SHAPE_MISMATCHED, with the field in
 * *ret_param, if one has not the calls that were asked for; else SHAPE_NONE. Choices that ended
 * with `length` are not judged. Takes work from *fuel (grammar/shape_match.h). */
enum shape_end upstream_calls_look(struct str request, struct str answer, uint32_t *fuel,
                                   const char **ret_param);
