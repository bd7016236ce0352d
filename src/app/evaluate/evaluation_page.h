/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* evaluation_page: an evaluation as one HTML page that needs nothing else: no script, no font, no
 * address of another server. Light or dark is the reader's choice, by CSS.
 *
 * Thread: any.
 * Memory: appends to the caller's buf. */

#include "evaluate/evaluation.h"

void evaluation_page_write(struct buf *out, const struct evaluation *evaluation);
