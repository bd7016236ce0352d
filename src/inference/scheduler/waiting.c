/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/waiting.h"

#include "base/min_max.h"
#include "base/rng.h"
#include "scheduler/backend.h"

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

/* Tokens at the beginning that both prompts have. */
static uint32_t shared_tokens(const struct waiting_item *a, const struct waiting_item *b) {
    const uint32_t common = min_u32(a->token_count, b->token_count);
    uint32_t i = 0;
    while (i + 16 <= common && memcmp(a->tokens + i, b->tokens + i, 16 * sizeof *a->tokens) == 0)
        i += 16;
    while (i < common && a->tokens[i] == b->tokens[i]) i++;
    return i;
}

/* Whole blocks at the beginning that both prompts have. */
static uint32_t shared_blocks(const struct waiting_item *a, const struct waiting_item *b) {
    const uint32_t common = min_u32(a->token_count, b->token_count);
    uint32_t i = 0;
    while (i + BACKEND_BLOCK_TOKENS <= common &&
           memcmp(a->tokens + i, b->tokens + i, BACKEND_BLOCK_TOKENS * sizeof *a->tokens) == 0)
        i += BACKEND_BLOCK_TOKENS;
    return i / BACKEND_BLOCK_TOKENS;
}

static bool is_same_sweep(const struct waiting_item *a, const struct waiting_item *b) {
    return a->priority == b->priority && a->sweep == b->sweep;
}

static bool comes_before(const struct waiting_item *a, const struct waiting_item *b) {
    if (a->priority != b->priority) return a->priority < b->priority;
    if (a->sweep != b->sweep) return a->sweep < b->sweep;
    int order = waiting_compare_tokens(a->tokens, a->token_count, b->tokens, b->token_count);
    if (order != 0) return order < 0;
    return a->arrival < b->arrival;
}

static struct waiting_item *leftmost(const struct waiting *waiting) {
    struct waiting_item *item = waiting->root;
    while (item && item->left) item = item->left;
    return item;
}

/* The neighbours of `item` in the order of the treap; NULL at its ends. */
static void find_neighbours(const struct waiting *waiting, const struct waiting_item *item,
                            struct waiting_item **ret_before, struct waiting_item **ret_behind) {
    *ret_before = *ret_behind = NULL;
    for (struct waiting_item *at = waiting->root; at;) {
        const bool is_before = comes_before(at, item);
        if (is_before) *ret_before = at;
        at = is_before ? at->right : at->left;
    }
    for (struct waiting_item *at = waiting->root; at;) {
        const bool is_behind = comes_before(item, at);
        if (is_behind) *ret_behind = at;
        at = is_behind ? at->left : at->right;
    }
}

/* The sweep a new item belongs to; see the header. */
static uint64_t sweep_for(struct waiting *waiting, const struct waiting_item *item) {
    if (waiting->joins_allowed == 0) return waiting->sweep_next;
    const struct waiting_item *first = leftmost(waiting);
    if (!first || first->priority != item->priority || first->sweep + 1 != waiting->sweep_next)
        return waiting->sweep_next;
    if (waiting_compare_tokens(item->tokens, item->token_count, first->tokens, first->token_count) <
        0)
        return waiting->sweep_next;
    waiting->joins_allowed--;
    return first->sweep;
}

static void refresh(struct waiting_item *item) {
    item->answer_most = item->answer_max;
    item->below_count = 1;
    if (item->left) item->below_count += item->left->below_count;
    if (item->right) item->below_count += item->right->below_count;
    if (item->left) item->answer_most = max_u32(item->answer_most, item->left->answer_most);
    if (item->right) item->answer_most = max_u32(item->answer_most, item->right->answer_most);
}

/* Puts the items of `tree` before `item` into *less and the others into *more. */
static void split(struct waiting_item *tree, const struct waiting_item *item,
                  struct waiting_item **less, struct waiting_item **more) {
    if (!tree) {
        *less = *more = NULL;
        return;
    }
    if (comes_before(tree, item)) {
        *less = tree;
        split(tree->right, item, &tree->right, more);
    } else {
        *more = tree;
        split(tree->left, item, less, &tree->left);
    }
    refresh(tree);
}

/* Joins two trees, everything in `a` being before everything in `b`. */
static struct waiting_item *join(struct waiting_item *a, struct waiting_item *b) {
    if (!a) return b;
    if (!b) return a;
    struct waiting_item *top = a->weight < b->weight ? a : b;
    if (top == a)
        a->right = join(a->right, b);
    else
        b->left = join(a, b->left);
    refresh(top);
    return top;
}

static void put_in(struct waiting_item **link, struct waiting_item *item) {
    if (*link && (*link)->weight <= item->weight) {
        put_in(comes_before(item, *link) ? &(*link)->left : &(*link)->right, item);
    } else {
        split(*link, item, &item->left, &item->right);
        *link = item;
    }
    refresh(*link);
}

static void take_out(struct waiting_item **link, struct waiting_item *item) {
    assert(*link);
    if (*link == item) {
        *link = join(item->left, item->right);
        return;
    }
    take_out(comes_before(item, *link) ? &(*link)->left : &(*link)->right, item);
    refresh(*link);
}

/* Where `item` stands: before the near ones (negative), among them (0) or behind them. */
static int compare_to_near(const struct waiting_near *near, const struct waiting_item *item) {
    if (item == near->item) return 0;
    if (is_same_sweep(item, near->item) && shared_blocks(item, near->item) >= near->blocks)
        return 0;
    return comes_before(item, near->item) ? -1 : 1;
}

/* The longest answer of the near ones within `tree`. `has_left` and `has_right` tell that its
 * leftmost, or rightmost, item is known to be one of them. */
static uint32_t longest_answer(const struct waiting_near *near, const struct waiting_item *tree,
                               bool has_left, bool has_right) {
    if (!tree) return 0;
    if (has_left && has_right) return tree->answer_most;
    const int place = compare_to_near(near, tree);
    if (place < 0) return longest_answer(near, tree->right, has_left, has_right);
    if (place > 0) return longest_answer(near, tree->left, has_left, has_right);
    const uint32_t sides = max_u32(longest_answer(near, tree->left, has_left, true),
                                   longest_answer(near, tree->right, true, has_right));
    return max_u32(tree->answer_max, sides);
}

/* The first of the near ones with an answer of at least that length. */
static struct waiting_item *first_with(const struct waiting_near *near, struct waiting_item *tree,
                                       uint32_t answer) {
    if (!tree || tree->answer_most < answer) return NULL;
    const int place = compare_to_near(near, tree);
    struct waiting_item *found = place >= 0 ? first_with(near, tree->left, answer) : NULL;
    if (found || place > 0) return found;
    if (place == 0 && tree->answer_max >= answer) return tree;
    return first_with(near, tree->right, answer);
}

/* The items that share the most blocks with `item`, which is queued and may not be one of them. */
static struct waiting_near find_near(const struct waiting *waiting,
                                     const struct waiting_item *item) {
    struct waiting_item *before;
    struct waiting_item *behind;
    find_neighbours(waiting, item, &before, &behind);
    struct waiting_near near = {NULL, 0};
    if (before && is_same_sweep(before, item))
        near = (struct waiting_near){before, shared_blocks(before, item)};
    if (behind && is_same_sweep(behind, item)) {
        const uint32_t blocks = shared_blocks(behind, item);
        if (!near.item || blocks >= near.blocks) near = (struct waiting_near){behind, blocks};
    }
    return near;
}

static void choose_first(struct waiting *waiting) {
    struct waiting_item *least = leftmost(waiting);
    waiting->first = least;
    if (!least) return;
    struct waiting_near near = waiting->near;
    if (!near.item || !is_same_sweep(near.item, least)) near = find_near(waiting, least);
    if (!near.item) return; /* it is alone in its sweep */
    const uint32_t answer = longest_answer(&near, waiting->root, false, false);
    waiting->first = first_with(&near, waiting->root, answer);
    assert(waiting->first);
}

void waiting_add(struct waiting *waiting, struct waiting_item *item) {
    item->arrival = waiting->arrivals++;
    item->sweep = sweep_for(waiting, item);
    item->weight = (uint32_t)rng_at(0, item->arrival);
    put_in(&waiting->root, item);
    waiting->count++;
    const struct waiting_item *first = waiting->first;
    if (!first || item->priority < first->priority || is_same_sweep(item, first))
        choose_first(waiting);
}

struct waiting_item *waiting_first(const struct waiting *waiting) {
    return waiting->first;
}

void waiting_begin_first(struct waiting *waiting) {
    struct waiting_item *first = waiting->first;
    assert(first);
    if (first->sweep == waiting->sweep_next) {
        waiting->sweep_next++;
        waiting->joins_allowed = waiting->count;
    }
    waiting->near = find_near(waiting, first);
    take_out(&waiting->root, first);
    waiting->count--;
    choose_first(waiting);
}

void waiting_remove(struct waiting *waiting, struct waiting_item *item) {
    if (item == waiting->near.item) {
        const uint32_t blocks = waiting->near.blocks;
        waiting->near = find_near(waiting, item);
        waiting->near.blocks = min_u32(waiting->near.blocks, blocks);
    }
    take_out(&waiting->root, item);
    waiting->count--;
    if (item == waiting->first) choose_first(waiting);
}

/* Where `at` stands to the items that have more than `from` tokens in common with `item`. */
static int compare_to_shared(const struct waiting_item *item, uint32_t from,
                             const struct waiting_item *at) {
    if (at == item) return item->token_count > from ? 0 : 1;
    if (is_same_sweep(at, item) && shared_tokens(at, item) > from) return 0;
    return comes_before(at, item) ? -1 : 1;
}

/* The first of those items, or with `is_last` the last, and how many queued items come before it.
 * NULL: there are none. */
static const struct waiting_item *find_end(const struct waiting *waiting,
                                           const struct waiting_item *item, uint32_t from,
                                           bool is_last, uint32_t *ret_before) {
    const struct waiting_item *found = NULL;
    uint32_t before = 0;
    for (const struct waiting_item *at = waiting->root; at;) {
        const int place = compare_to_shared(item, from, at);
        const uint32_t to_at = before + (at->left ? at->left->below_count : 0);
        if (place == 0) {
            found = at;
            *ret_before = to_at;
        }
        const bool goes_right = place < 0 || (place == 0 && is_last);
        if (goes_right) before = to_at + 1;
        at = goes_right ? at->right : at->left;
    }
    return found;
}

uint32_t waiting_branch(const struct waiting *waiting, const struct waiting_item *item,
                        uint32_t from, uint32_t *ret_count) {
    uint32_t first_at, last_at;
    const struct waiting_item *first = find_end(waiting, item, from, false, &first_at);
    const struct waiting_item *last = find_end(waiting, item, from, true, &last_at);
    if (!first || !last) return 0;
    *ret_count = last_at - first_at + 1;
    return min_u32(shared_tokens(first, item), shared_tokens(last, item));
}
