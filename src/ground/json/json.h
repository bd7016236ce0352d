/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* json: a thin layer over jansson: strict reading of foreign bytes, ASCII writing, checked access.
 *
 * Reading keeps the order of keys, tells integers from reals and takes the last of duplicate keys,
 * or refuses them (json_read_once).
 * It refuses nesting over JSON_DEPTH_MAX, and trees that would take too much memory, before
 * jansson's recursive parser sees the text.
 *
 * Thread: any; a json_t belongs to one thread at a time.
 * Memory: json_t is reference counted. */

#include "base/buf.h"

#include <jansson.h>

#define JSON_DEPTH_MAX 128

/* Reads one JSON value in valid UTF-8, which the caller owns. ERR_INVALID for any other text, which
 * the sentence describes: "not valid JSON: …, at byte N", or "JSON with …, at byte N" for JSON that
 * quern does not read. ERR_UNAVAILABLE if the machine has no memory for it. */
enum err json_read(json_t **ret_value, struct str text, struct error *error) MUST_CHECK;
/* As json_read, for texts from clients: ERR_LIMIT, before anything is built, if the tree would take
 * more than *room bytes; else *room is less by what the tree takes at its peak. */
enum err json_read_within(json_t **ret_value, struct str text, size_t *room,
                          struct error *error) MUST_CHECK;

/* As json_read, for a file that Python has written: Infinity, which it writes and JSON lacks, is
 * read as 1e308. */
enum err json_read_python(json_t **ret_value, struct str text, struct error *error) MUST_CHECK;
/* The same for a text in place. */
void json_mend_python(char *text, size_t bytes);

/* As json_read_within, for texts that decide something: ERR_INVALID also for an object with two
 * equal keys, since readers differ in which of them counts. */
enum err json_read_once(json_t **ret_value, struct str text, size_t *room,
                        struct error *error) MUST_CHECK;

/* Appends compact JSON in pure ASCII (other characters as \uXXXX), so that no reader splits a
 * record at U+2028. */
void json_write(struct buf *buf, const json_t *value);
/* Appends `text` as a JSON string with its quotes, in pure ASCII. Invalid UTF-8 becomes U+FFFD. */
void json_write_string(struct buf *buf, struct str text);
/* The same, but characters outside ASCII stay as they are: for JSON inside a string of JSON. */
void json_write_utf8_string(struct buf *buf, struct str text);
/* Appends a finite float as a number with a point or an exponent, in the fewest digits that read
 * back as the same float. */
void json_write_float(struct buf *buf, float value);

/* A member of an object, or NULL if it is absent or null: for every optional field, null means
 * absent. */
json_t *json_member(const json_t *object, const char *key);
/* The member's text, borrowed; an empty str with `at` NULL if it is absent or no string. */
struct str json_member_str(const json_t *object, const char *key);
struct str json_str(const json_t *string);
/* The element of a list whose member `index` is lowest, such as the first choice of an answer;
 * servers give choices in any order. An element without an index has its place. NULL for no list,
 * or an empty one. */
json_t *json_first_by_index(const json_t *list);

/* Appends the canonical form of a value: keys sorted by bytes, shortest number forms, no spaces.
 * Equal values have equal canonical forms. */
void json_write_canonical(struct buf *buf, const json_t *value);
