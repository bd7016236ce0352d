/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* preflight_show: the figures of a preflight on standard output, as text for a reader or as one
 * JSON object.
 *
 * Thread: main.
 * Memory: borrows everything. */

#include "preflight/preflight.h"

/* `path` is the file's name. */
void preflight_show(const struct preflight *is, const char *path, const struct prices *prices);
void preflight_show_json(const struct preflight *is, const struct prices *prices);
