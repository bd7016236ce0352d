/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/plan_decode.h"

#include "gpu/plan_classes.h"

#include <assert.h>
#include <stdlib.h>

/* Items times KV heads that a GPU wants. */
static uint32_t items_wanted(uint32_t kv_heads, uint32_t multiprocessors) {
    return (multiprocessors + kv_heads - 1) / kv_heads;
}

uint32_t plan_decode_pieces_max(uint32_t kv_heads, uint32_t multiprocessors) {
    /* Halving the longest pieces that make enough items gives less than twice as many and one per
     * item, of which fewer than wanted are. */
    return 3 * items_wanted(kv_heads, multiprocessors);
}

/* The keys of an item that its row sees. */
static void seen(const struct gpu_decode_item *item, uint32_t window, uint32_t *ret_begin,
                 uint32_t *ret_end) {
    uint32_t end = item->position + 1;
    *ret_begin = item->begin;
    if (window && end > window && end - window > *ret_begin) *ret_begin = end - window;
    *ret_end = item->end < end ? item->end : end;
}

static uint32_t tokens_seen(const struct gpu_decode_item *item, uint32_t window) {
    uint32_t begin, end;
    seen(item, window, &begin, &end);
    return end > begin ? end - begin : 0;
}

/* Pieces between multiples of `tokens` that begin..end-1 has. */
static uint32_t pieces_of(uint32_t begin, uint32_t end, uint32_t tokens) {
    return end > begin ? (end - 1) / tokens - begin / tokens + 1 : 1;
}

static uint32_t pieces_of_all(const struct gpu_decode_item *whole, uint32_t item_count,
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
static uint32_t piece_tokens(const struct gpu_decode_item *whole, uint32_t item_count,
                             const struct plan_decode_shape *shape, uint32_t wanted) {
    uint32_t tokens = shape->split_tokens;
    if (pieces_of_all(whole, item_count, shape->window, tokens) <= wanted) return tokens;
    while (tokens < UINT32_MAX / 4 &&
           pieces_of_all(whole, item_count, shape->window, 2 * tokens) >= wanted)
        tokens *= 2;
    return tokens;
}

/* Adds the pieces of an item, or the item when the plan has no room for them and the items left. */
static void add_pieces(struct plan_decode *plan, const struct gpu_decode_item *item,
                       uint32_t window, uint32_t tokens, uint32_t items_left) {
    uint32_t begin, end;
    seen(item, window, &begin, &end);
    uint32_t pieces = pieces_of(begin, end, tokens);
    if (pieces == 1 || item->partial_out != GPU_NONE ||
        plan->item_count + pieces + items_left > plan->item_room ||
        plan->partial_count + pieces > plan->partial_room ||
        plan->merge_count == plan->merge_room) {
        struct gpu_decode_item *one = &plan->items[plan->item_count++];
        *one = *item;
        one->begin = begin;
        one->end = end;
        return;
    }
    uint32_t first = plan->partial_first + plan->partial_count;
    for (uint32_t i = 0; i < pieces; i++) {
        struct gpu_decode_item *piece = &plan->items[plan->item_count++];
        *piece = *item;
        piece->begin = i == 0 ? begin : (begin / tokens + i) * tokens;
        piece->end = i == pieces - 1 ? end : (begin / tokens + i + 1) * tokens;
        if (i > 0) piece->partial_count = 0;
        piece->partial_out = first + i;
    }
    plan->partial_count += pieces;
    plan->merges[plan->merge_count++] = (struct gpu_merge_item){item->row, first, pieces, 0};
}

static uint32_t tokens_of(const struct gpu_decode_item *item) {
    return item->end > item->begin ? item->end - item->begin : 0;
}

static int by_tokens(const void *a, const void *b) {
    const struct gpu_decode_item *x = a, *y = b;
    uint32_t x_tokens = tokens_of(x), y_tokens = tokens_of(y);
    if (x_tokens != y_tokens) return x_tokens < y_tokens ? 1 : -1;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Copies whole items in order of their cost. */
static void add_whole(struct plan_decode *plan, const struct gpu_decode_item *whole,
                      uint32_t item_count, uint32_t window) {
    struct plan_classes classes;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < item_count; i++) {
        uint32_t tokens = tokens_seen(&whole[i], window);
        if (tokens > longest) longest = tokens;
    }
    plan_classes_begin(&classes, longest);
    for (uint32_t i = 0; i < item_count; i++)
        plan_classes_count(&classes, tokens_seen(&whole[i], window));
    plan_classes_settle(&classes);
    for (uint32_t i = 0; i < item_count; i++) {
        struct gpu_decode_item *item =
            &plan->items[plan_classes_place(&classes, tokens_seen(&whole[i], window))];
        *item = whole[i];
        seen(&whole[i], window, &item->begin, &item->end);
    }
    plan->item_count = item_count;
}

void plan_decode_fill(struct plan_decode *plan, const struct gpu_decode_item *whole,
                      uint32_t item_count, const struct plan_decode_shape *shape) {
    assert(plan->item_room >= item_count && shape->kv_heads > 0);
    plan->item_count = plan->merge_count = plan->partial_count = 0;
    uint32_t wanted = items_wanted(shape->kv_heads, shape->multiprocessors);
    if ((uint64_t)item_count * shape->kv_heads >= shape->multiprocessors) {
        add_whole(plan, whole, item_count, shape->window);
        return;
    }
    uint32_t tokens = piece_tokens(whole, item_count, shape, wanted);
    for (uint32_t i = 0; i < item_count; i++)
        add_pieces(plan, &whole[i], shape->window, tokens, item_count - 1 - i);
    qsort(plan->items, plan->item_count, sizeof *plan->items, by_tokens);
}
