/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answer_schema: the JSON schema of the answers in a table: its properties are columns, and an
 * answer fits if its cells can be taken for it.
 *
 * It looks at the top level of an answer alone, since that is what cells show: members that are
 * missing, surplus, null or of another type than the schema says. It is no validator: what it does
 * not know (references, alternatives, bounds) fits.
 *
 * Thread: one.
 * Memory: a copy of the schema, and the names. */

#include "base/buf.h"

struct answer_schema;

/* How an answer is to its schema. */
enum answer_fit {
    ANSWER_FITS,
    ANSWER_HAS_MORE, /* it fits, and has members that are no columns */
    ANSWER_FITS_NOT, /* a sentence says why */
};

/* The schema that a request asks for, a raw line; NULL if it asks for none with properties. */
struct answer_schema *answer_schema_open(struct str request);
/* A schema, raw JSON; NULL if it has no properties. */
struct answer_schema *answer_schema_read(struct str whole);
void answer_schema_close(struct answer_schema *schema); /* NULL is allowed */
size_t answer_schema_count(const struct answer_schema *schema);
/* The name of a property, in the order of the schema. */
const char *answer_schema_name(const struct answer_schema *schema, size_t index);
/* Compares a raw object with the schema; `why` gets the sentence of one that does not fit. */
enum answer_fit answer_schema_compare(const struct answer_schema *schema, struct str object,
                                      struct buf *why);
