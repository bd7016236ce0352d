/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* span: finds values inside JSON text without building a tree, for ten thousand lines per second.
 *
 * It checks the grammar of the text that it steps over as strictly as json_read does
 * (JSON_DEPTH_MAX, surrogate pairs, no raw control characters), with three exceptions: the range of
 * numbers, a NUL in a key, and UTF-8, which json_span_is_utf8 checks for a whole line at once.
 *
 * Thread: any; pure.
 * Memory: spans are views of the text.
 * Invariant: a span is one JSON value without space around it. */

#include "base/buf.h"

/* The text without the space of JSON around it: blanks, tabs and ends of lines. A form feed is no
 * space. */
struct str json_span_trim(struct str text);
/* The end of the value that starts at or after `at`; SIZE_MAX if no valid value does. */
size_t json_span_end(struct str text, size_t at);
/* True, with the value's span (NULL allowed), if `text` is one valid value and space. */
bool json_span_read(struct str text, struct str *ret_value);
/* As utf8_is_valid, fast on ASCII. */
bool json_span_is_utf8(struct str text);

/* Steps through the members of an object or the elements of an array. */
struct json_span_iter {
    struct str text;
    size_t at; /* after the latest member; at the end, after the closing bracket */
    bool started;
    bool is_bad; /* the steps ended because the text is not valid there */
};

/* Starts in `value`, a span. False if it is neither an object nor an array. */
bool json_span_enter(struct json_span_iter *iter, struct str value);
/* The next member; *ret_key is the raw string with its quotes. False at the end. */
bool json_span_member(struct json_span_iter *iter, struct str *ret_key, struct str *ret_value);
/* The next element. False at the end. */
bool json_span_element(struct json_span_iter *iter, struct str *ret_value);

/* The member `name` of a valid object, the last one of several; `at` is NULL if it is absent. */
struct str json_span_get(struct str object, const char *name);

bool json_span_is_string(struct str value);
bool json_span_is_object(struct str value);
/* The inside of a Markdown code block if the text is one, as models write around JSON, else the
 * text; without space around it. */
struct str json_span_unfenced(struct str text);
/* True if the raw string, with its quotes, means `text`. */
bool json_span_string_is(struct str string, const char *text);
/* Appends the text that the raw string, with its quotes, means, as UTF-8. */
void json_span_decode(struct buf *buf, struct str string);
/* The text of a raw string: a view of it if it has no escapes, else decoded into `scratch`. */
struct str json_span_text(struct str string, struct buf *scratch);
/* Appends raw JSON text, valid UTF-8, with all characters outside ASCII as \uXXXX. */
void json_span_add_ascii(struct buf *buf, struct str text);
