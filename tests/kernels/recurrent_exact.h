/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* recurrent_exact: the layers of kernels/recurrent.h in double, all rows of an item as one chunk.
 *
 * No state goes from row to row: a row's result is a sum over the rows before it and the first
 * state (for Gated DeltaNet the UT transform of Yang et al. 2024). So it shares no step with the
 * recurrence that it checks. At most EXACT_ROWS rows per item.
 *
 * Thread: one.
 * Memory: blocks within a call. */

#include "kernels/kernels.h"

#define EXACT_ROWS 128

void exact_short_conv(const struct short_conv *call, const struct recurrent_item *item,
                      uint32_t channel_begin, uint32_t channel_end);
void exact_delta_rule(const struct delta_rule *call, const struct recurrent_item *item,
                      uint32_t head_begin, uint32_t head_end);
void exact_mamba(const struct mamba *call, const struct recurrent_item *item, uint32_t head_begin,
                 uint32_t head_end);
void exact_gated_norm(const struct gated_norm *call);
