/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* attention_plan: cuts decode items, on the host. Plain C; knows no device.
 *
 * An item and KV head is a block, and one block a multiprocessor keeps a card busy; with fewer,
 * long items are cut at absolute multiples of CUDA_SPLIT_TOKENS, so that where a row is cut depends
 * on the cut's length alone, and the pieces leave partials that cuda_attention_merge adds up.
 *
 * Thread: any.  Memory: the caller's. */

#include "kernels/cuda/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_decode_plan {
    struct device_decode_item *items; /* room for item_room; longest first */
    uint32_t item_room;
    uint32_t item_count;
    struct device_merge_item *merges; /* room for merge_room */
    uint32_t merge_room;
    uint32_t merge_count;
    uint32_t partial_first; /* partials from here on are free */
    uint32_t partial_room;
    uint32_t partial_count;
};

/* Fills `plan` from whole items, one for each row: cuts them when `item_count` · `kv_heads` is less
 * than `multiprocessors`, into no more pieces than make so many, and sorts. An item that finds
 * no room for its pieces stays whole. item_room must be at least item_count. */
void cuda_decode_plan(struct cuda_decode_plan *plan, const struct device_decode_item *whole,
                      uint32_t item_count, uint32_t window, uint32_t kv_heads,
                      uint32_t multiprocessors);

#ifdef __cplusplus
}
#endif
