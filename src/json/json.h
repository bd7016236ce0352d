/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* json: a thin layer over jansson: strict reading of foreign bytes, ASCII writing, checked access.
 *
 * Reading keeps key order, tells integers from reals, takes the last of duplicate keys, and refuses
 * nesting over JSON_DEPTH_MAX before jansson's recursive parser sees it.
 *
 * Thread: any; a json_t belongs to one thread at a time.  Memory: json_t is reference counted. */

#include "base/buf.h"

#include <jansson.h>

#define JSON_DEPTH_MAX 128

/* ERR_INVALID with "…, at byte N" for what is not one JSON value in valid UTF-8. The caller owns
 * *ret_value. */
enum err json_read(json_t **ret_value, struct str text, struct error *error) MUST_CHECK;

/* Appends compact JSON. Pure ASCII (everything else as \uXXXX), so that no reader splits a record
 * at U+2028. */
void json_write(struct buf *buf, const json_t *value);
/* Appends `text` as a JSON string with its quotes, pure ASCII. Invalid UTF-8 becomes U+FFFD. */
void json_write_string(struct buf *buf, struct str text);
/* Appends a finite float as a number with a point or an exponent, of the fewest digits that read
 * back as the same float. */
void json_write_float(struct buf *buf, float value);

/* A member of an object, or NULL when it is absent or null: for every optional field null means
 * absent. */
json_t *json_member(const json_t *object, const char *key);
/* The member's text; an empty str with at NULL when it is absent or not a string. Borrowed. */
struct str json_member_str(const json_t *object, const char *key);
struct str json_str(const json_t *string);

/* Appends the canonical form of a value: keys sorted by bytes, shortest number forms, no spaces.
 * Equal values have equal canonical forms. */
void json_write_canonical(struct buf *buf, const json_t *value);
