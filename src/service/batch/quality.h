/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* quality: signs that answers are wrong although every request succeeded: cut off, cut off in
 * a thought, empty, all the same, or broken JSON.
 *
 * Each answer is looked at once, when it is committed. The findings travel with its record, so that
 * a restart counts them without reading the answer. JSON is expected if at least half of the
 * answers begin as JSON does.
 *
 * Thread: any; pure.
 * Memory: one answer's text. */

#include "batch/extras.h"
#include "store/seglog.h"

/* Describes the body of a successful answer: bits of enum seglog_mark, and a hash of the text of
 * all its choices (0: no text). */
void quality_look(struct str body, uint8_t *ret_marks, uint32_t *ret_answer);

/* The share of the answers of each kind, 0..1. */
void quality_shares(const struct seglog_counts *counts, double ret_shares[QUALITY_SHARES]);
/* True, with the share in *ret_share, if there are enough answers and a share is above its
 * limit. */
bool quality_is_alarming(const struct seglog_counts *counts, const struct batch_extras *extras,
                         enum quality_share *ret_share);
/* Appends {"answers":N,"in_thought":0.01,…,"alarm":"empty" or null,"shapes":…} (shape_ends.h). */
void quality_write(struct buf *buf, const struct seglog_counts *counts,
                   const struct batch_extras *extras);
