/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* config: the labeling config of a Label Studio project, written from a form.
 *
 * The config is XML: the text of the request, one control per field, a rating and a comment for the
 * whole answer, and the answer as it was given, folded away. Names of fields and options come from a
 * stranger's schema: the five characters that mean something in XML are escaped, and characters that
 * XML does not have become U+FFFD.
 *
 * Thread: any.
 * Memory: appends to the caller's buf. */

#include "base/buf.h"
#include "label_studio/form.h"

void config_write(struct buf *out, const struct form *form);
