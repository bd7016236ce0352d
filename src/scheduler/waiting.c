/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/waiting.h"

#include "base/rng.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

int waiting_compare_tokens(const int32_t *a, uint32_t a_count, const int32_t *b, uint32_t b_count) {
    uint32_t common = a_count < b_count ? a_count : b_count;
    uint32_t i = 0;
    /* Whole cache lines first: prompts that share an instruction are equal for a long way. */
    while (i + 16 <= common && memcmp(a + i, b + i, 16 * sizeof *a) == 0) i += 16;
    while (i < common && a[i] == b[i]) i++;
    if (i < common) return a[i] < b[i] ? -1 : 1;
    return (a_count > b_count) - (a_count < b_count);
}

static bool comes_before(const struct waiting_item *a, const struct waiting_item *b) {
    if (a->priority != b->priority) return a->priority < b->priority;
    if (a->sweep != b->sweep) return a->sweep < b->sweep;
    int order = waiting_compare_tokens(a->tokens, a->token_count, b->tokens, b->token_count);
    if (order != 0) return order < 0;
    return a->arrival < b->arrival;
}

/* The sweep a new item belongs to; see the header. */
static uint64_t sweep_for(struct waiting *waiting, const struct waiting_item *item) {
    if (waiting->joins_allowed == 0) return waiting->sweep_next;
    const struct waiting_item *first = waiting_first(waiting);
    if (!first || first->priority != item->priority || first->sweep + 1 != waiting->sweep_next)
        return waiting->sweep_next;
    if (waiting_compare_tokens(item->tokens, item->token_count, first->tokens, first->token_count) <
        0)
        return waiting->sweep_next;
    waiting->joins_allowed--;
    return first->sweep;
}

/* Puts the items of `tree` before `item` into *less and the others into *more. */
static void split(struct waiting_item *tree, const struct waiting_item *item,
                  struct waiting_item **less, struct waiting_item **more) {
    while (tree) {
        if (comes_before(tree, item)) {
            *less = tree;
            less = &tree->right;
            tree = tree->right;
        } else {
            *more = tree;
            more = &tree->left;
            tree = tree->left;
        }
    }
    *less = *more = NULL;
}

/* Joins two trees, everything in `a` being before everything in `b`, at *link. */
static void join(struct waiting_item *a, struct waiting_item *b, struct waiting_item **link) {
    while (a && b) {
        if (a->weight < b->weight) {
            *link = a;
            link = &a->right;
            a = a->right;
        } else {
            *link = b;
            link = &b->left;
            b = b->left;
        }
    }
    *link = a ? a : b;
}

void waiting_add(struct waiting *waiting, struct waiting_item *item) {
    item->arrival = waiting->arrivals++;
    item->sweep = sweep_for(waiting, item);
    item->weight = (uint32_t)rng_at(0, item->arrival);
    struct waiting_item **link = &waiting->root;
    while (*link && (*link)->weight <= item->weight)
        link = comes_before(item, *link) ? &(*link)->left : &(*link)->right;
    split(*link, item, &item->left, &item->right);
    *link = item;
    waiting->count++;
}

struct waiting_item *waiting_first(const struct waiting *waiting) {
    struct waiting_item *item = waiting->root;
    while (item && item->left) item = item->left;
    return item;
}

void waiting_begin_first(struct waiting *waiting) {
    struct waiting_item **link = &waiting->root;
    assert(*link);
    while ((*link)->left) link = &(*link)->left;
    const struct waiting_item *first = *link;
    if (first->sweep == waiting->sweep_next) {
        waiting->sweep_next++;
        waiting->joins_allowed = waiting->count;
    }
    *link = first->right;
    waiting->count--;
}

void waiting_remove(struct waiting *waiting, struct waiting_item *item) {
    struct waiting_item **link = &waiting->root;
    while (*link != item) {
        assert(*link);
        link = comes_before(item, *link) ? &(*link)->left : &(*link)->right;
    }
    join(item->left, item->right, link);
    waiting->count--;
}
