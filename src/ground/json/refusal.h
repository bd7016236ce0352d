/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* refusal: the sentences in which a field of a request is refused, over envelope.h.
 *
 * Each names the parameter and, where it is short, the value that the client sent.
 *
 * Thread: any.
 * Memory: plain structs; long values are cut to fit. */

#include "json/envelope.h"

/* Fill *refusal with status 400 and return false. */
bool refuse_type(struct refusal *refusal, const char *param, const char *expected,
                 const json_t *got);
/* `supported` is a list for the reader: "'a', 'b'". */
bool refuse_value(struct refusal *refusal, const char *param, const json_t *got,
                  const char *supported);
/* `reason` is a sentence without its full stop. */
bool refuse_unsupported(struct refusal *refusal, const char *param, const char *reason);

/* The member of an object that must exist as a string, an object or an array of objects, borrowed;
 * `param` names it. NULL and *refusal if it is missing, null or of another type. */
json_t *require_member(const json_t *object, const char *key, json_type type, const char *param,
                       struct refusal *refusal);

/* Refuses the text of JSON in a field that json_read has refused. */
bool refuse_json(struct refusal *refusal, const char *param, const struct error *error);

#define VALUE_TEXT_BYTES 96
/* A JSON value as text for a message, cut with "…" if it is long. Returns `text`. */
const char *value_text(const json_t *value, char text[VALUE_TEXT_BYTES]);
