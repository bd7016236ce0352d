/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* origin: which bytes of a text are given, that is, came with the request; the others are the
 * template's.
 *
 * So a tokenizer can take control tokens from the template only. Cutting, joining, replacing and
 * padding tell bytes apart one by one. A text made in another way (upper case, JSON) counts as
 * given as a whole when a byte of its source is.
 *
 * Thread: as render.
 * Memory: the arena of the rendering.
 * Invariant: spans ascend and do not touch. Texts that share memory share an origin, which grows
 *     only behind the bytes of all of them; a reader stops at the end of its text. */

#include "base/err.h"
#include "base/text_ranges.h"

#include <stdbool.h>

struct render;

struct origin {
    struct text_range *at;
    size_t count;
    size_t capacity;
};

/* The origin of a text of the request. */
extern const struct origin origin_given;

/* Marks start..end, behind all spans, as given. */
enum err origin_add(struct render *render, struct origin *origin, size_t start, size_t end);
/* Copies the marks of from..from + bytes in `of` to the same number of bytes at `to`. `of` may be
 * NULL. */
enum err origin_add_part(struct render *render, struct origin *origin, size_t to,
                         const struct origin *of, size_t from, size_t bytes);
/* True when a byte of from..from + bytes is given. `origin` may be NULL. */
bool origin_has(const struct origin *origin, size_t from, size_t bytes);
/* Drops all marks at and behind `end`. */
void origin_truncate(struct origin *origin, size_t end);
