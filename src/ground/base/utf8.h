/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* utf8: strict UTF-8 (RFC 3629: no surrogates, no overlong forms, nothing above U+10FFFF).
 *
 * Thread: any; pure.
 * Memory: none, but utf8_add_repaired appends to the caller's buf. */

#include "base/buf.h"

#define UTF8_REPLACEMENT 0xFFFDu

/* Length of the longest valid prefix; text.bytes if all of the text is valid. */
size_t utf8_valid_prefix(struct str text);
bool utf8_is_valid(struct str text);
/* Decodes the code point at text[at]; the text must be valid there. Returns its length in bytes. */
size_t utf8_decode(struct str text, size_t at, uint32_t *ret_code_point);
/* Writes 1 to 4 bytes and returns their count. The code point must be a Unicode scalar value. */
size_t utf8_encode(uint32_t code_point, char ret_bytes[4]);
size_t utf8_count(struct str text); /* code points in valid text */
/* Count of bytes (0 to 3) at the end of `text` that may begin a character whose rest is missing. */
size_t utf8_incomplete_tail(struct str text);
/* Appends `text`, each invalid byte run replaced by U+FFFD as Python's errors="replace" does. */
void utf8_add_repaired(struct buf *buf, struct str text);
