/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* utf8: strict UTF-8 (RFC 3629: no surrogates, no overlong forms, nothing above U+10FFFF).
 * Thread: any.  Memory: none. */

#include "base/buf.h"

#define UTF8_REPLACEMENT 0xFFFDu

/* Length of the longest valid prefix; equals text.bytes when all of it is valid. */
size_t utf8_valid_prefix(struct str text);
bool utf8_is_valid(struct str text);
/* Decodes the code point at text[at]; the text must be valid there. Returns its length in bytes. */
size_t utf8_decode(struct str text, size_t at, uint32_t *ret_code_point);
/* Writes 1..4 bytes and returns how many. The code point must be a Unicode scalar value. */
size_t utf8_encode(uint32_t code_point, char ret_bytes[4]);
size_t utf8_count(struct str text); /* code points in valid text */
/* How many bytes at the end of `text` (0..3) may be the start of a character that is not complete
 * yet. */
size_t utf8_incomplete_tail(struct str text);
/* Appends `text`, each invalid byte run replaced by U+FFFD as Python's errors="replace" does. */
void utf8_add_repaired(struct buf *buf, struct str text);
