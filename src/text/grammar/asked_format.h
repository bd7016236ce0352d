/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* asked_format: the object that names the form of an answer, as response_format has it: a type and
 * the members of that type. Internal to asked_shape.c.
 *
 * OpenAI's types are text, json_object and json_schema. Other servers write a schema next to the
 * type json_object or json_schema (llama.cpp, Together, Fireworks, OpenAI's own Responses), and
 * have types for regular expressions and rules. A member that its type does not have is refused,
 * because it may be a constraint.
 *
 * Thread: any.
 * Memory: as asked_shape.h. */

#include "grammar/asked_shape.h"

/* Reads the object. `param` is its name, static. */
bool asked_format_read(struct asked_shape *shape, const char *param, json_t *value,
                       struct refusal *refusal);

/* --- of asked_shape.c --- */

/* Takes over the source. False if the body asks for a shape already. */
bool asked_shape_set(struct asked_shape *shape, const char *param, enum grammar_kind kind,
                     json_t *source, struct refusal *refusal);
/* Readers of one value each: a schema or the text of one; a regular expression; rules; a structural
 * tag. */
bool asked_shape_schema(struct asked_shape *shape, const char *param, json_t *value,
                        struct refusal *refusal);
bool asked_shape_regex(struct asked_shape *shape, const char *param, json_t *value,
                       struct refusal *refusal);
bool asked_shape_rules(struct asked_shape *shape, const char *param, json_t *value,
                       struct refusal *refusal);
bool asked_shape_tags(struct asked_shape *shape, const char *param, json_t *value,
                      struct refusal *refusal);
