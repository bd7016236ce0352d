/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* members: several members of an object by their names, found in one pass over its text.
 *
 * Thread: any; pure.
 * Memory: views of the text. */

#include "base/str.h"

/* Writes (count) raw values, the last of equal names; `at` NULL for a member that is absent or
 * null. A span that is no object has none. The texts of `names` end in NUL. */
void members_find(struct str object, const struct str *names, size_t count, struct str *ret_values);
