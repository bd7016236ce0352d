/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* evaluation_json: an evaluation as one JSON object, with every figure of the page and with the
 * summary of each run.
 *
 * Thread: any.
 * Memory: appends to the caller's buf. */

#include "evaluate/evaluation.h"

void evaluation_json_write(struct buf *out, const struct evaluation *evaluation);
