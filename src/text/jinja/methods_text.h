/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* methods_text: the methods of str that filters use too.
 *
 * Thread: as render.
 * Memory: as render. */

#include "jinja/arith.h"
#include "jinja/builtin.h"

enum err text_capitalize(struct render *render, struct value text, struct value *ret_text);
/* Drops the characters of `chars` (absent or none: white space) at the start, the end. */
enum err text_strip(struct render *render, struct value text, struct value chars, bool at_start,
                    bool at_end, struct value *ret_text);
/* Replaces the first `count` occurrences; all when it is negative. */
enum err text_replace(struct render *render, struct value text, struct str old, struct value new,
                      int64_t count, struct value *ret_text);
/* Pads to `width` code points: '<' keeps the text left, '>' right, '^' in the middle. */
enum err text_pad(struct render *render, struct value text, int64_t width, struct value fill,
                  char align, struct value *ret_text);
/* Joins the items of a walk with `separator`. An item that is no text is an error unless
 * `convert`. */
enum err text_join(struct render *render, struct value separator, struct value items, bool convert,
                   struct value *ret_text);
