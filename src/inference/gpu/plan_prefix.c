/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/plan_prefix.h"

#include "gpu/plan_classes.h"
#include "scheduler/backend.h"

#include <stdlib.h>

/* The least query heads and keys with which a prefix pays: half of the 128 heads of a tile would
 * idle below 16 anyway, and 64 keys are four times the bytes of the partials of a row. */
#define HEADS_MIN 16u
#define TOKENS_MIN 64u
/* Keys of one item: longer prefixes are cut, to spread over the device. */
#define ITEM_TOKENS 1024u

struct plan_node {
    uint32_t first; /* spans first..last */
    uint32_t last;
    uint32_t blocks;
    uint32_t lowest; /* the span with the lowest position: it sees the most */
    /* For a node that pays. */
    bool pays;
    uint32_t begin; /* keys begin..16 · blocks - 1 */
    uint32_t piece; /* keys of an item */
    uint32_t piece_count;
    uint32_t above; /* partials that the nodes above it leave per row */
    uint32_t root;  /* index of the topmost node above it that pays, or its own */
    uint32_t depth; /* at a root: partials per row */
    uint32_t partial;
};

enum err plan_prefix_open(struct plan_prefix *ret_prefix, const struct plan_prefix_options *options,
                          struct error *error) {
    struct plan_prefix prefix = {.options = *options};
    prefix.nodes = calloc(options->spans_max, sizeof *prefix.nodes);
    prefix.stack = calloc(options->spans_max, sizeof *prefix.stack);
    prefix.parents = calloc(options->spans_max, sizeof *prefix.parents);
    prefix.found = calloc(options->items_max, sizeof *prefix.found);
    if (!prefix.nodes || !prefix.stack || !prefix.parents || !prefix.found) {
        plan_prefix_close(&prefix);
        return err_set(error, ERR_LIMIT, "no memory to plan %u sequences", options->spans_max);
    }
    *ret_prefix = prefix;
    return OK;
}

void plan_prefix_close(struct plan_prefix *prefix) {
    free(prefix->nodes);
    free(prefix->stack);
    free(prefix->parents);
    free(prefix->found);
    *prefix = (struct plan_prefix){0};
}

static uint32_t lower_of(const struct plan_span *spans, uint32_t a, uint32_t b) {
    return spans[b].position < spans[a].position ? b : a;
}

/* Lists the nodes of the tree; returns their number. Each has at least two spans, so that there are
 * fewer nodes than spans. */
static uint32_t list_nodes(struct plan_prefix *prefix, const struct plan_span *spans,
                           uint32_t span_count, uint32_t first_block) {
    struct plan_node *stack = prefix->stack;
    uint32_t node_count = 0, depth = 0;
    for (uint32_t i = 0; i < span_count; i++) {
        uint32_t shared = i + 1 < span_count ? spans[i].shared : 0;
        uint32_t first = i, lowest = i;
        if (shared < first_block) shared = first_block;
        while (depth > 0 && stack[depth - 1].blocks > shared) {
            struct plan_node *node = &stack[--depth];
            node->last = i;
            first = node->first;
            lowest = node->lowest = lower_of(spans, node->lowest, lowest);
            prefix->nodes[node_count++] = *node;
        }
        if (depth > 0 && stack[depth - 1].blocks == shared)
            stack[depth - 1].lowest = lower_of(spans, stack[depth - 1].lowest, lowest);
        else if (shared > first_block)
            stack[depth++] = (struct plan_node){.first = first, .blocks = shared, .lowest = lowest};
    }
    return node_count;
}

static uint32_t rows_of(const struct plan_span *spans, const struct plan_node *node) {
    return spans[node->last].row + spans[node->last].row_count - spans[node->first].row;
}

/* Items of `rows` rows and one run of keys. */
static uint32_t tiles_of(const struct plan_prefix *prefix, uint32_t rows) {
    return (rows + prefix->options.tile_rows - 1) / prefix->options.tile_rows;
}

/* Cuts the keys of a node into `count` pieces or less, of whole pages. */
static void cut(struct plan_node *node, uint32_t count) {
    uint32_t tokens = node->blocks * GPU_PAGE_TOKENS - node->begin;
    uint32_t pages = backend_blocks_for(tokens);
    node->piece = (pages + count - 1) / count * GPU_PAGE_TOKENS;
    node->piece_count = (tokens + node->piece - 1) / node->piece;
}

/* Decides about a node, below `parent`, the next node above it that pays, or NULL. Sets all of its
 * fields but `partial`, and counts items and partials. */
static void decide(struct plan_prefix *prefix, const struct plan_span *spans,
                   struct plan_node *node, const struct plan_node *parent, uint32_t window) {
    uint32_t rows = rows_of(spans, node), end = node->blocks * GPU_PAGE_TOKENS;
    node->begin = plan_first_seen(window, spans[node->lowest].position);
    if (parent && parent->blocks * GPU_PAGE_TOKENS > node->begin)
        node->begin = parent->blocks * GPU_PAGE_TOKENS;
    if (rows * prefix->options.group < HEADS_MIN || end < node->begin + TOKENS_MIN) return;

    struct plan_node *root = parent ? &prefix->nodes[parent->root] : node;
    uint32_t root_rows = rows_of(spans, root);
    uint32_t items_left = prefix->options.items_max - prefix->item_count;
    uint32_t partials_left = prefix->options.partials_max - prefix->partial_count;
    node->above = parent ? parent->above + parent->piece_count : 0;
    uint32_t pieces = (end - node->begin + ITEM_TOKENS - 1) / ITEM_TOKENS;
    uint32_t most = root->depth - node->above + partials_left / root_rows;
    if (pieces > most) pieces = most;
    if (pieces > items_left / tiles_of(prefix, rows)) pieces = items_left / tiles_of(prefix, rows);
    if (pieces == 0) return;

    cut(node, pieces);
    node->pays = true;
    node->root = (uint32_t)(root - prefix->nodes);
    prefix->item_count += node->piece_count * tiles_of(prefix, rows);
    uint32_t depth = node->above + node->piece_count;
    if (depth > root->depth) {
        prefix->partial_count += (depth - root->depth) * root_rows;
        root->depth = depth;
    }
}

/* Decides about all nodes, from the last to the first: each comes after the nodes above it. */
static void decide_all(struct plan_prefix *prefix, const struct plan_span *spans,
                       uint32_t node_count, uint32_t window) {
    uint32_t parents = 0;
    for (uint32_t i = node_count; i-- > 0;) {
        struct plan_node *node = &prefix->nodes[i];
        while (parents > 0 && prefix->nodes[prefix->parents[parents - 1]].first > node->last)
            parents--;
        decide(prefix, spans, node,
               parents > 0 ? &prefix->nodes[prefix->parents[parents - 1]] : NULL, window);
        if (node->pays) prefix->parents[parents++] = i;
    }
}

/* Reads of keys that the nodes save the rows below them. */
static uint64_t reads_saved(const struct plan_prefix *prefix, const struct plan_span *spans,
                            uint32_t node_count) {
    uint64_t reads = 0;
    for (uint32_t i = 0; i < node_count; i++) {
        const struct plan_node *node = &prefix->nodes[i];
        if (node->pays)
            reads +=
                (uint64_t)rows_of(spans, node) * (node->blocks * GPU_PAGE_TOKENS - node->begin);
    }
    return reads;
}

static void tell_spans(const struct plan_prefix *prefix, struct plan_span *spans,
                       const struct plan_node *node) {
    const struct plan_node *root = &prefix->nodes[node->root];
    for (uint32_t i = node->first; i <= node->last; i++) {
        struct plan_span *span = &spans[i];
        uint32_t end = node->blocks * GPU_PAGE_TOKENS;
        if (end > span->begin) span->begin = end;
        span->partial = root->partial + (span->row - spans[root->first].row) * root->depth;
        span->partial_count = node->above + node->piece_count;
        span->partial_step = root->depth;
    }
}

static uint32_t add_items(const struct plan_prefix *prefix, const struct plan_span *spans,
                          const struct plan_node *node, uint32_t count) {
    const struct plan_node *root = &prefix->nodes[node->root];
    uint32_t rows = rows_of(spans, node), row = spans[node->first].row;
    uint32_t end = node->blocks * GPU_PAGE_TOKENS;
    for (uint32_t i = 0; i < node->piece_count; i++) {
        uint32_t begin = node->begin + i * node->piece;
        uint32_t partial =
            root->partial + (row - spans[root->first].row) * root->depth + node->above + i;
        for (uint32_t j = 0; j < rows; j += prefix->options.tile_rows) {
            uint32_t left = rows - j;
            prefix->found[count++] = (struct gpu_tile_item){
                .row = row + j,
                .row_count = left < prefix->options.tile_rows ? left : prefix->options.tile_rows,
                .begin = begin,
                .end = end < begin + node->piece ? end : begin + node->piece,
                .pages = spans[node->lowest].pages,
                .partial_in = GPU_NONE,
                .partial_out = partial + j * root->depth,
                .partial_step = root->depth};
        }
    }
    return count;
}

void plan_prefix_fill(struct plan_prefix *prefix, struct plan_span *spans, uint32_t span_count,
                      uint32_t first_block, uint32_t window, struct gpu_tile_item *ret_items) {
    uint32_t node_count = list_nodes(prefix, spans, span_count, first_block);
    prefix->item_count = prefix->partial_count = 0;
    decide_all(prefix, spans, node_count, window);
    if (reads_saved(prefix, spans, node_count) < prefix->options.reads_min)
        node_count = prefix->item_count = prefix->partial_count = 0;
    for (uint32_t i = 0; i < span_count; i++) {
        spans[i].begin = plan_first_seen(window, spans[i].position);
        spans[i].partial = spans[i].partial_count = spans[i].partial_step = 0;
    }
    uint32_t count = 0, partials = 0;
    for (uint32_t i = node_count; i-- > 0;) {
        struct plan_node *node = &prefix->nodes[i];
        if (!node->pays) continue;
        if (node->root == i) {
            node->partial = partials;
            partials += rows_of(spans, node) * node->depth;
        }
        tell_spans(prefix, spans, node);
        count = add_items(prefix, spans, node, count);
    }
    plan_prefix_sort(prefix->found, count, ret_items);
}

void plan_prefix_sort(const struct gpu_tile_item *items, uint32_t count,
                      struct gpu_tile_item *ret_items) {
    struct plan_classes classes;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < count; i++)
        if (items[i].end - items[i].begin > longest) longest = items[i].end - items[i].begin;
    plan_classes_begin(&classes, longest);
    for (uint32_t i = 0; i < count; i++)
        plan_classes_count(&classes, items[i].end - items[i].begin);
    plan_classes_settle(&classes);
    for (uint32_t i = 0; i < count; i++)
        ret_items[plan_classes_place(&classes, items[i].end - items[i].begin)] = items[i];
}
