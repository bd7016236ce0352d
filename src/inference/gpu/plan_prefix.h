/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plan_prefix: the prefixes of a step that several sequences share, as attention items.
 *
 * Neighbours whose page tables begin alike make a tree: a node is a run of spans with their common
 * leading blocks. A node becomes items of its own, read once for all its rows, when it pays: enough
 * query heads to fill half a tile of a tensor core, and enough keys to cover the partials that it
 * leaves. A node that does not pay leaves its keys to the nodes below it, and in the end to the
 * rows. No node pays if all together save fewer reads than reads_min, since their launch then takes
 * more time than it saves. A row that is under several nodes gets their partials side by side.
 *
 * Thread: one at a time.
 * Memory: sized at open.
 * Invariant: the nodes above a span cover its keys from the first that it sees to `begin` once. */

#include "gpu/table.h"

/* Rows of one sequence in the attention of a step. */
struct plan_span {
    uint32_t sequence; /* index into step.sequences */
    uint32_t row;
    uint32_t row_count;
    uint32_t position; /* position of the first row; the rows' positions ascend */
    uint32_t end;      /* keys of the sequence, with those of this step */
    uint32_t pages;    /* index of the page table, as the items have it */
    uint32_t shared;   /* leading blocks in common with the next span, all before `position` */
    /* Set by plan_prefix_fill. */
    uint32_t begin;         /* the first key that is left for the rows themselves */
    uint32_t partial;       /* the first of the first row */
    uint32_t partial_count; /* per row; 0: no prefix */
    uint32_t partial_step;  /* from a row's partials to the next row's */
};

struct plan_prefix_options {
    uint32_t group; /* query heads per KV head */
    uint32_t tile_rows;
    uint32_t spans_max;
    uint32_t items_max;
    uint32_t partials_max;
    uint64_t reads_min; /* keys times rows of all nodes with which they pay */
};

struct plan_node;

struct plan_prefix {
    struct plan_prefix_options options;
    struct plan_node *nodes; /* (spans_max) a node behind all nodes below it */
    struct plan_node *stack; /* (spans_max) */
    uint32_t *parents;       /* (spans_max) indices of nodes */
    struct gpu_tile_item *found;
    /* Results. */
    uint32_t item_count;
    uint32_t partial_count;
};

enum err plan_prefix_open(struct plan_prefix *ret_prefix, const struct plan_prefix_options *options,
                          struct error *error) MUST_CHECK;
void plan_prefix_close(struct plan_prefix *prefix);

/* Fills ret_items, (items_max), the costly ones first, and the last fields of the spans. Blocks
 * before `first_block` are ignored: no row sees them. `window` as in plan_decode. */
void plan_prefix_fill(struct plan_prefix *prefix, struct plan_span *spans, uint32_t span_count,
                      uint32_t first_block, uint32_t window, struct gpu_tile_item *ret_items);
/* The first key that a row at `position` sees. */
static inline uint32_t plan_first_seen(uint32_t window, uint32_t position) {
    return window && position + 1 > window ? position + 1 - window : 0;
}
/* Copies items in order of their cost. */
void plan_prefix_sort(const struct gpu_tile_item *items, uint32_t count,
                      struct gpu_tile_item *ret_items);
