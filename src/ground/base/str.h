/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* str: a borrowed run of bytes with its length. The bytes need not end in NUL and may hold NUL.
 *
 * Thread: any.
 * Memory: owns nothing; the bytes must outlive the str. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct str {
    const char *at; /* NULL only when bytes is 0 */
    size_t bytes;
};

#define STR(literal) ((struct str){"" literal, sizeof(literal) - 1})
/* The arguments of printf's "%.*s". */
#define STR_ARGS(string) (int)(string).bytes, (string).at

struct str str_from(const char *text); /* the empty str for NULL */
bool str_equals(struct str a, struct str b);
bool str_is(struct str a, const char *text);
bool str_starts_with(struct str whole, struct str start);
bool str_ends_with(struct str whole, struct str end);
/* Negative, 0 or positive by the order of bytes; the shorter str is first on a tie. */
int str_compare(struct str a, struct str b);
/* The part from `from` to the end; empty if `from` lies behind it. */
struct str str_skip(struct str whole, size_t from);
/* Index of the first `byte` at or after `from`, or SIZE_MAX. */
size_t str_find_byte(struct str whole, char byte, size_t from);
/* Index of the first occurrence of `part` at or after `from`, or SIZE_MAX. */
size_t str_find(struct str whole, struct str part, size_t from);
/* The length of the longest beginning of `part`, but not all of it, with which `whole` ends: bytes
 * that may become `part` when more follow. `part` is not empty. */
size_t str_begun(struct str whole, struct str part);
/* Drops ASCII whitespace at both ends. */
struct str str_trim(struct str whole);
/* Reads the whole text as a decimal integer. False, with nothing written, for any other text and
 * for a number out of range. */
bool str_to_i64(struct str text, int64_t *ret_value);
bool str_to_u64(struct str text, uint64_t *ret_value);
/* The word that agrees with a count: `one` for 1, otherwise `several`. */
const char *plural(uint64_t count, const char *one, const char *several);
