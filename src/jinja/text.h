/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* text: strings of the template: making them, writing them, and their code points.
 * Thread: as render.  Memory: the arena of the rendering. */

#include "jinja/render.h"

/* A text with a copy of the bytes; the template's, as with text_borrow. */
enum err text_copy(struct render *render, struct str bytes, struct value *ret_text);
/* A text over bytes that outlive the rendering or lie in its arena. */
enum err text_borrow(struct render *render, struct str bytes, struct value *ret_text);
/* A text over a part of `whole`, sharing its bytes and their origin; markup when `whole` is. */
enum err text_part(struct render *render, struct value whole, size_t from, size_t bytes,
                   struct value *ret_text);
/* Takes what was written to the output since it held `start` bytes off again, as a text. */
enum err text_take(struct render *render, size_t start, struct value *ret_text);
/* The same, as markup when `like` is. */
enum err text_take_like(struct render *render, size_t start, struct value like,
                        struct value *ret_text);
/* `left` followed by `right` (plain), sharing left's memory where it can. */
enum err text_concat(struct render *render, struct value left, struct value right,
                     struct value *ret_text);

/* Whether the request gave a byte of it. */
bool text_is_given(struct value text);
/* Writes bytes of a text to the output, with their origin. */
enum err text_write(struct render *render, struct value text);
enum err text_write_part(struct render *render, struct value text, size_t from, size_t bytes);
/* What was written since the output held `start` bytes was made of `text` in a way that does not
 * tell its bytes apart: all of it counts as given when a byte of `text` is. */
enum err text_claim(struct render *render, size_t start, struct value text);
/* str(value): `value` itself when it is a text. */
enum err text_of(struct render *render, struct value value, struct value *ret_text);
/* The same text, marked (or not) as markup. */
enum err text_mark(struct render *render, struct value text, bool markup, struct value *ret_text);

size_t text_points(struct text *text);
/* Byte offset of code point number `index`, which is at most text_points(). */
size_t text_offset(struct text *text, size_t index);
/* How many code points the first `bytes` bytes hold. */
size_t text_index(struct text *text, size_t bytes);
/* The text with & < > ' " as HTML character references, as markup; itself when it is markup. */
enum err text_escape(struct render *render, struct value text, struct value *ret_text);
