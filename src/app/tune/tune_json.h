/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tune_json: the figures of trials as one JSON object.
 *
 * Thread: any.
 * Memory: appends to the caller's buf. */

#include "base/buf.h"
#include "tune/tune.h"

void tune_json_write(struct buf *out, const struct tune_figures *figures);
