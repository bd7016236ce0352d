/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* unicode: the character classes and case mappings of Python's str, through libutf8proc.
 *
 * Thread: any.
 * Memory: none. */

#include "base/buf.h"

bool unicode_is_space(uint32_t point);
bool unicode_is_printable(uint32_t point);
bool unicode_is_upper(uint32_t point);
bool unicode_is_lower(uint32_t point);
bool unicode_is_title(uint32_t point);
bool unicode_is_alpha(uint32_t point);
bool unicode_is_decimal(uint32_t point);
bool unicode_is_digit(uint32_t point);
bool unicode_is_numeric(uint32_t point);
bool unicode_is_line_break(uint32_t point);
bool unicode_is_name_start(uint32_t point);
bool unicode_is_name(uint32_t point);

enum letter_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_SWAP, CASE_FOLD, CASE_KEEP };
/* Appends one code point in the case `to`; several for ß and the ligatures. */
void unicode_add_cased(struct buf *buf, uint32_t point, enum letter_case to);
/* Appends the whole text in upper or lower case. */
void unicode_add_text(struct buf *buf, struct str text, enum letter_case to);

/* `text` without white space at its end. */
struct str unicode_trim_end(struct str text);
/* Bytes of white space in `text` from `from` on. */
size_t unicode_space_run(struct str text, size_t from);
