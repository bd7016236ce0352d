/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config: the labeling config of a Label Studio project, written from a form.
 *
 * The config is XML: the text of the request, one control per field, a rating and a comment for the
 * whole answer, and the answer as it was given, folded away. Names of fields and options come from
 * foreign schemas: the five special characters of XML are escaped, and characters that XML lacks
 * become U+FFFD.
 *
 * Thread: any.
 * Memory: appends to the caller's buf.
 * Invariant: a name adds no markup. */

#include "base/buf.h"
#include "label_studio/form.h"

void config_write(struct buf *out, const struct form *form);
