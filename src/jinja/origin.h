/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* origin: which bytes of a text came with the request; the others are the template's.
 *
 * A tokenizer may then take control tokens from the template only. What is cut, joined, replaced or
 * padded is told apart byte by byte; what is made of a text in another way (its upper case, its
 * JSON) counts as given when a byte of that text is.
 *
 * Thread: as render.  Memory: the arena of the rendering.
 * Invariant: spans ascend and do not touch. Texts that share memory share an origin, which grows
 * only behind the bytes that any of them has; whoever reads it stops at the end of its text. */

#include "base/err.h"
#include "base/span.h"

#include <stdbool.h>

struct render;

struct origin {
    struct span *at;
    size_t count;
    size_t capacity;
};

/* That of a text which came with the request as it is. */
extern const struct origin origin_given;

/* start..end, behind all that are there, are given. */
enum err origin_add(struct render *render, struct origin *origin, size_t start, size_t end);
/* What `of` says of from..from + bytes holds of as many bytes at `to`. `of` may be NULL. */
enum err origin_add_part(struct render *render, struct origin *origin, size_t to,
                         const struct origin *of, size_t from, size_t bytes);
/* Whether a byte of from..from + bytes is given. `origin` may be NULL. */
bool origin_has(const struct origin *origin, size_t from, size_t bytes);
/* Drops what is at or after `end`. */
void origin_truncate(struct origin *origin, size_t end);
