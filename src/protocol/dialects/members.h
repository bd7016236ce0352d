/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* members: the members of a JSON object by name, as spans, without a tree.
 *
 * It knows no dialect. A value is checked by the one who reads it.
 *
 * Thread: any; pure.
 * Memory: spans are views of the text.
 * Invariant: a member that is null counts as absent. */

#include "json/envelope.h"
#include "json/span.h"

/* The place of one member's value. `at` of the value is NULL if the member is absent or null. */
struct member {
    const char *name;
    struct str *value;
};

/* Fills the places from `object`, the span of a valid object; members that no place names are left
 * alone. False, with *ret_refusal, if an object has a named member twice: it would not be clear
 * which one counts. */
bool members_read(struct str object, const struct member *places, size_t count,
                  struct refusal *ret_refusal);

static inline bool member_is_array(struct str value) {
    return value.bytes > 0 && value.at[0] == '[';
}

static inline bool member_is_true(struct str value) {
    return str_is(value, "true");
}

/* True for true and false. */
bool member_is_bool(struct str value);
/* True if the value is a JSON number; *ret_number is the nearest double. */
bool member_number(struct str value, double *ret_number);
/* True if the value is an absent member, an empty text, an empty array or an empty object. */
bool member_is_empty(struct str value);
/* The kind of a value as a sentence names it: "an object", "a number". */
const char *member_kind(struct str value);
