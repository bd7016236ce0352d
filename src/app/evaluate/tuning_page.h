/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tuning_page: the settings of an evaluation as a part of its page: impact, saving and effort.
 *
 * Thread: one.
 * Memory: appends to the caller's buf. */

#include "base/buf.h"
#include "evaluate/evaluation.h"

/* Nothing, if no setting was measured. */
void tuning_page_write(struct buf *out, const struct evaluation *evaluation);
