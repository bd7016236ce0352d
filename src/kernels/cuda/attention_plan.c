/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/attention_plan.h"

#include <assert.h>
#include <stdlib.h>

/* Blocks that a card wants of each multiprocessor. More pieces than that cost more in partials and
 * in their merge (5 µs and up) than they win: docs/internals/device.md, "Attention". */
#define BLOCKS_A_MULTIPROCESSOR 1

/* The keys that `item` sees. */
static void seen(const struct device_decode_item *item, uint32_t window, uint32_t *ret_begin,
                 uint32_t *ret_end) {
    uint32_t end = item->position + 1;
    *ret_begin = item->begin;
    if (window && end > window && end - window > *ret_begin) *ret_begin = end - window;
    *ret_end = item->end < end ? item->end : end;
}

/* Pieces of `tokens` tokens, a multiple of CUDA_SPLIT_TOKENS, that begin..end-1 has. */
static uint32_t pieces_of(uint32_t begin, uint32_t end, uint32_t tokens) {
    return end > begin ? (end - 1) / tokens - begin / tokens + 1 : 1;
}

static uint32_t pieces_of_all(const struct device_decode_item *whole, uint32_t item_count,
                              uint32_t window, uint32_t tokens) {
    uint32_t pieces = 0;
    for (uint32_t i = 0; i < item_count; i++) {
        uint32_t begin, end;
        seen(&whole[i], window, &begin, &end);
        pieces += pieces_of(begin, end, tokens);
    }
    return pieces;
}

/* The longest pieces, by doubling, that still make `wanted` items; the shortest when none do. */
static uint32_t piece_tokens(const struct device_decode_item *whole, uint32_t item_count,
                             uint32_t window, uint32_t wanted) {
    uint32_t tokens = CUDA_SPLIT_TOKENS;
    if (pieces_of_all(whole, item_count, window, tokens) <= wanted) return tokens;
    while (tokens < UINT32_MAX / 4 &&
           pieces_of_all(whole, item_count, window, 2 * tokens) >= wanted)
        tokens *= 2;
    return tokens;
}

/* Adds the pieces of an item, or the item when there is no room for them. */
static void add(struct cuda_decode_plan *plan, const struct device_decode_item *item,
                uint32_t window, uint32_t tokens, uint32_t others) {
    uint32_t begin, end;
    seen(item, window, &begin, &end);
    uint32_t pieces = tokens ? pieces_of(begin, end, tokens) : 1;
    if (pieces == 1 || item->partial_out != DEVICE_NONE ||
        plan->item_count + pieces + others > plan->item_room ||
        plan->partial_count + pieces > plan->partial_room ||
        plan->merge_count == plan->merge_room) {
        struct device_decode_item *one = &plan->items[plan->item_count++];
        *one = *item;
        one->begin = begin, one->end = end;
        return;
    }
    uint32_t first = plan->partial_first + plan->partial_count;
    for (uint32_t i = 0; i < pieces; i++) {
        struct device_decode_item *piece = &plan->items[plan->item_count++];
        *piece = *item;
        piece->begin = i == 0 ? begin : (begin / tokens + i) * tokens;
        piece->end = i == pieces - 1 ? end : (begin / tokens + i + 1) * tokens;
        if (i > 0) piece->partial_count = 0;
        piece->partial_out = first + i;
    }
    plan->partial_count += pieces;
    plan->merges[plan->merge_count++] = (struct device_merge_item){item->row, first, pieces, 0};
}

static int by_tokens(const void *a, const void *b) {
    const struct device_decode_item *x = a, *y = b;
    uint32_t x_tokens = x->end > x->begin ? x->end - x->begin : 0;
    uint32_t y_tokens = y->end > y->begin ? y->end - y->begin : 0;
    if (x_tokens != y_tokens) return x_tokens < y_tokens ? 1 : -1;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

void cuda_decode_plan(struct cuda_decode_plan *plan, const struct device_decode_item *whole,
                      uint32_t item_count, uint32_t window, uint32_t kv_heads,
                      uint32_t multiprocessors) {
    uint32_t blocks = BLOCKS_A_MULTIPROCESSOR * multiprocessors, tokens = 0;
    assert(plan->item_room >= item_count && kv_heads > 0);
    plan->item_count = plan->merge_count = plan->partial_count = 0;
    if (item_count * kv_heads < blocks)
        tokens = piece_tokens(whole, item_count, window, (blocks + kv_heads - 1) / kv_heads);
    for (uint32_t i = 0; i < item_count; i++)
        add(plan, &whole[i], window, tokens, item_count - 1 - i);
    qsort(plan->items, plan->item_count, sizeof *plan->items, by_tokens);
}
