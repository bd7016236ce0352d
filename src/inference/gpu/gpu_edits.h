/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gpu_edits: the changes of rows' logits between model and draw, as edits and masks of a device.
 *
 * The edits of a row stand in the order of its tokens. Tokens are marked in a bitmap as they are
 * found and read out in order, so that a prompt of a thousand tokens costs a few microseconds and
 * no sort. Many bad words become a mask: then their edits would be more than a mask's words.
 *
 * Thread: one at a time.
 * Memory: sized at open. */

#include "gpu/table.h"
#include "scheduler/backend.h"

struct gpu_edits;

/* The most edits that one row can need: its bad words, biases and held tokens, and two penalties
 * for each token of its context. edits_max is at least this. */
uint32_t gpu_edits_of_row(uint32_t vocab, uint32_t context_max);
enum err gpu_edits_open(struct gpu_edits **ret_edits, uint32_t vocab, uint32_t rows_max,
                        uint32_t edits_max, struct error *error) MUST_CHECK;
void gpu_edits_close(struct gpu_edits *edits); /* NULL is allowed */

/* Begins a call for rows of a step, with room for edits_max edits. */
void gpu_edits_begin(struct gpu_edits *edits);
/* Adds the edits and the mask of row `index` of the call; sets these fields and the fallback of
 * `draw`. False, with nothing added, when too little room is left: the row belongs to the next
 * call. An empty call has room for every row. */
bool gpu_edits_add(struct gpu_edits *edits, const struct logit_row *row, uint32_t index,
                   struct gpu_draw *draw) MUST_CHECK;
/* Sets the edits and masks of the call's samples, valid until the next call. */
void gpu_edits_end(const struct gpu_edits *edits, struct gpu_samples *samples);
