/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request_thought: what the thoughts of a model mean for a request: its shape begins where the
 * thought ends, and the thought ends by its budget.
 *
 * Thread: as request.h.
 * Memory: as request.h. */

#include "engine/request.h"
#include "engine/served_model.h"

/* Finds the marks of thoughts by the template, and whether the answer to `prompt`, the text that
 * the model gets, begins with one. Lets the request's shape begin behind it. */
bool request_prep_thought(struct request *request, const struct served_model *model,
                          const struct jinja_template *template, struct str prompt,
                          struct refusal *ret_refusal) MUST_CHECK;

/* The most tokens of a thought, so that max_tokens leaves room for an answer with a shape;
 * UINT32_MAX: no limit. */
uint32_t request_thought_limit(const struct request *request, bool has_shape, uint32_t max_tokens);
