/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* quality: signs that answers are wrong although every request succeeded: cut off, empty, all the
 * same, or broken JSON. Each answer is looked at once, when it is committed; what was seen travels
 * with its record, so that a restart counts it again without reading it.
 *
 * JSON is expected when at least half of the answers begin as JSON does.
 *
 * Thread: any; pure.  Memory: one answer's text. */

#include "batch/extras.h"
#include "store/seglog.h"

/* What the body of a successful answer looks like: bits of enum seglog_mark, and a hash of its text
 * (of all choices; 0 when there is none). */
void quality_look(struct str body, uint8_t *ret_marks, uint32_t *ret_answer);

/* The share of the answers of each kind, 0..1. */
void quality_shares(const struct seglog_counts *counts, double ret_shares[QUALITY_SHARES]);
/* Whether a share is above its limit, once there are enough answers; *ret_share is which. */
bool quality_is_alarming(const struct seglog_counts *counts, const struct batch_extras *extras,
                         enum quality_share *ret_share);
/* Appends {"answers":N,"truncated":0.01,…,"alarm":"empty" or null}. */
void quality_write(struct buf *buf, const struct seglog_counts *counts,
                   const struct batch_extras *extras);
