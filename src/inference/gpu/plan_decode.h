/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plan_decode: the decode items of a launch, cut where few rows would leave the GPU idle.
 *
 * A GPU computes an item and KV head at a time per multiprocessor. With fewer of them than
 * multiprocessors, long items are cut at absolute multiples of split_tokens. The pieces leave
 * partials, and a merge per row adds them up. More pieces than multiprocessors cost more in
 * partials and merges than they win (docs/internals/inference/gpu.md).
 *
 * Thread: any.
 * Memory: the caller's.
 * Invariant: the pieces of an item cover the keys that its row sees once, in order. */

#ifdef __cplusplus
extern "C" {
#endif

#include "gpu/table.h"

struct plan_decode_shape {
    uint32_t window;          /* keys that a row sees; 0: all */
    uint32_t kv_heads;        /* at least 1 */
    uint32_t multiprocessors; /* 0: no item is cut */
    uint32_t split_tokens;    /* gpu_table.split_tokens */
};

struct plan_decode {
    struct gpu_decode_item *items; /* (item_room), item_count set; the costly ones first */
    uint32_t item_room;
    uint32_t item_count;
    struct gpu_merge_item *merges; /* (merge_room), merge_count set */
    uint32_t merge_room;
    uint32_t merge_count;
    uint32_t partial_first; /* the first free partial */
    uint32_t partial_room;  /* free partials */
    uint32_t partial_count; /* partials that pieces leave */
};

/* The most additional items, and the most merges and partials, that cutting makes. */
uint32_t plan_decode_pieces_max(uint32_t kv_heads, uint32_t multiprocessors);

/* Fills `plan` from whole items, one per row. An item that finds no room for its pieces stays
 * whole. item_room is at least item_count. */
void plan_decode_fill(struct plan_decode *plan, const struct gpu_decode_item *whole,
                      uint32_t item_count, const struct plan_decode_shape *shape);

#ifdef __cplusplus
}
#endif
