/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* key_scope: the rights that a key has and that a route needs, and their names.
 *
 * Thread: any; pure.
 * Memory: names are constants. */

#include "base/err.h"
#include "base/str.h"

/* The right that a route needs; bit i of a key's scopes is the right i. */
enum key_scope {
    KEY_SCOPE_ADMIN, /* zero, so that a route without a scope is closed; includes all others */
    KEY_SCOPE_FILES,
    KEY_SCOPE_BATCHES,
    KEY_SCOPE_INFER,
    KEY_SCOPE_METRICS,
    KEY_SCOPE_NAMED_COUNT,
    KEY_SCOPE_ANY,  /* any key will do */
    KEY_SCOPE_OPEN, /* no key is needed: health, version */
};

#define KEY_SCOPES_ALL ((1u << KEY_SCOPE_NAMED_COUNT) - 1)
#define KEY_SCOPES_DEFAULT (1u << KEY_SCOPE_FILES | 1u << KEY_SCOPE_BATCHES | 1u << KEY_SCOPE_INFER)

/* "admin", "files", …, for scopes below KEY_SCOPE_NAMED_COUNT. */
const char *key_scope_name(enum key_scope scope);
/* Adds the bit of the scope with this name to *scopes; false if no scope has it. */
bool key_scope_find(struct str name, uint32_t *scopes);
/* Reads "files,batches" into bits. ERR_INVALID names the word that is no scope. */
enum err key_scopes_read(struct str list, uint32_t *ret_scopes, struct error *error) MUST_CHECK;
