/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* text: the values that are texts: making them, writing them, and their code points.
 *
 * Thread: as render.
 * Memory: the arena of the rendering. */

#include "jinja/render.h"

/* A text with a copy of the bytes; its origin is the template. */
enum err text_copy(struct render *render, struct str bytes, struct value *ret_text);
/* A text over bytes that outlive the rendering or lie in its arena; its origin is the template. */
enum err text_borrow(struct render *render, struct str bytes, struct value *ret_text);
/* A text over a part of `whole`, which shares its bytes and their origin; markup when `whole`
 * is. */
enum err text_part(struct render *render, struct value whole, size_t from, size_t bytes,
                   struct value *ret_text);
/* Takes the output from byte `start` on off again, as a text. */
enum err text_take(struct render *render, size_t start, struct value *ret_text);
/* text_take that gives markup when `like` is. */
enum err text_take_like(struct render *render, size_t start, struct value like,
                        struct value *ret_text);
/* `left` followed by `right`, without markup; shares left's memory where possible. */
enum err text_concat(struct render *render, struct value left, struct value right,
                     struct value *ret_text);

/* True when a byte of the text is given (origin.h). */
bool text_is_given(struct value text);
/* Writes bytes of a text to the output, with their origin. */
enum err text_write(struct render *render, struct value text);
enum err text_write_part(struct render *render, struct value text, size_t from, size_t bytes);
/* Marks the output from byte `start` on as given when a byte of `text` is. For text that was made
 * of `text` without telling its bytes apart. */
enum err text_claim(struct render *render, size_t start, struct value text);
/* str(value): `value` itself when it is a text. */
enum err text_of(struct render *render, struct value value, struct value *ret_text);
/* The same text as markup, or not as markup. */
enum err text_mark(struct render *render, struct value text, bool markup, struct value *ret_text);

size_t text_points(struct text *text);
/* The byte offset of code point number `index`, at most text_points(). */
size_t text_offset(struct text *text, size_t index);
/* The number of code points in the first `bytes` bytes. */
size_t text_index(struct text *text, size_t bytes);
/* The text with & < > ' " as HTML character references, as markup. Markup is returned unchanged. */
enum err text_escape(struct render *render, struct value text, struct value *ret_text);
