/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* asked_foreign: refuses the constraints of a body that nobody here reads, by the names of its
 * members (asked_names.h), so that none is ignored in silence.
 *
 * It looks at the body, at the tools, and into members that are unknown; it does not look into
 * messages, metadata and the variables of a template, whose words are the client's.
 *
 * Thread: any; pure.
 * Memory: none is kept. */

#include "json/refusal.h"

/* False, and *ret_refusal names the member, if the body has such a constraint. */
bool asked_foreign_check(const json_t *body, struct refusal *ret_refusal);
/* The same for the members of one object in a field: of those, `known` (NULL at the end) are read
 * by others. With `is_closed`, each other member that asks for anything is refused. */
bool asked_foreign_check_members(const json_t *object, const char *param, const char *const *known,
                                 bool is_closed, struct refusal *ret_refusal);
