/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* number: numbers as Python reads, writes and rounds them.
 *
 * Thread: any.
 * Memory: none. */

#include "base/buf.h"

#define NUMBER_TEXT_BYTES 40

/* repr(real): the shortest digits that read back as the same number. Returns the length. */
size_t number_write_float(double real, char ret_text[NUMBER_TEXT_BYTES]);
size_t number_write_int(int64_t integer, char ret_text[NUMBER_TEXT_BYTES]);
/* int(text, base): base is 2..36, or 0 for a prefix 0x, 0o or 0b. White space around the digits and
 * `_` between them are allowed. False for any other text, and for a number over 64 bits. */
bool number_read_int(struct str text, unsigned base, int64_t *ret_integer);
/* float(text). */
bool number_read_float(struct str text, double *ret_real);
/* round(real, digits): to even on a tie of the exact value. */
double number_round(double real, int64_t digits);
/* int(real); false for NaN, infinities and numbers over 64 bits. */
bool number_truncate(double real, int64_t *ret_integer);
