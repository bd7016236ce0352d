/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* comparison_json: the figures of a comparison as members of a JSON object, the same ones for
 * `quern compare` and `quern evaluate`.
 *
 * Thread: any.
 * Memory: appends to the caller's buf. */

#include "base/buf.h"
#include "compare/comparison.h"

/* Appends the members without the braces around them. */
void comparison_json_write(struct buf *out, const struct comparison *comparison);
