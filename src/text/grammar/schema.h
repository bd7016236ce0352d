/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* schema: JSON Schema 2020-12 as an expression of the JSON texts that it allows.
 *
 * The text is compact, with at most one space after a comma and a colon. Members stand in the order
 * of the schema: `properties`, other required names, additional ones. Strings have the one spelling
 * of charset.h, numbers of type integer have no fraction.
 *
 * A keyword that the expression cannot hold exactly is refused by name, with its place in the
 * schema; annotations have no effect. Schemas that apply to one value together ($ref, allOf,
 * siblings of anyOf) are taken together: their expression is of values that keep all of them.
 *
 * Thread: any.
 * Memory: none of its own; the schema is borrowed during the call. */

#include "base/err.h"
#include "grammar/expr.h"

#include <jansson.h>

/* ERR_INVALID with the place for a schema that is wrong, not supported or allows no value;
 * ERR_LIMIT for one that is too large. */
enum err schema_expr(struct exprs *exprs, const json_t *schema, uint32_t *ret_expr,
                     struct error *error) MUST_CHECK;
