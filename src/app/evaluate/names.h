/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* names: the custom_ids that a file of results or judgements has.
 *
 * Thread: one.
 * Memory: the names, at most NAMES_MAX; further ones are not kept. */

#include "base/err.h"
#include "base/str.h"

#include <jansson.h>
#include <stdbool.h>

#define NAMES_MAX 1000000

struct names {
    json_t *set; /* an object whose members are the names; NULL: none was read */
};

enum err names_read(struct names *names, const char *path, struct error *error) MUST_CHECK;
/* Whether the line, a JSON object, has one of the names as its custom_id. */
bool names_has(const struct names *names, struct str line);
void names_release(struct names *names);
