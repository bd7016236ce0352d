/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* waiting: the requests that have not begun, in the order in which they will begin.
 *
 * Priority comes first, the lower number earlier. Within a priority the queue is served in sweeps,
 * like the requests of a disk arm (the elevator). A sweep goes once through its requests in a
 * depth-first order of the prefix tree of their prompts. So requests that share a prefix begin one
 * after the other, while the prefix is cached.
 *
 * The prefix tree leaves a choice: next to begin is any request that shares as many blocks with the
 * last one that began as the nearer of its neighbours in the queue did. The longest answer
 * (`answer_max`) is chosen, by the rule of the longest processing time first (Graham, "Bounds on
 * Multiprocessing Timing Anomalies", 1969): a long answer that begins last runs alone at the end of
 * a batch. Among equal answers the lexicographic order of the prompts decides, then arrival.
 *
 * A request that arrives during a sweep joins the next one. Those whose place is still ahead may
 * join the current sweep, as many as were waiting when it began. So no stream of arrivals can hold
 * back a request of the same priority for longer than two such sweeps.
 *
 * The queue is a treap (Seidel, Aragon 1996) in the order (priority, sweep, tokens, arrival), with
 * its links and the longest answer of each subtree inside the items: O(log count) comparisons per
 * operation. Requests that share blocks with another stand next to each other in it.
 *
 * Thread: one.
 * Memory: the items are the caller's and must not move while queued.
 * Invariant: the first item has the least (priority, sweep) of all. */

#include <stdbool.h>
#include <stdint.h>

struct waiting_item {
    int64_t priority;
    const int32_t *tokens; /* (token_count), unchanged while queued */
    uint32_t token_count;
    uint32_t answer_max; /* most tokens of the answer; equal for all: the order of the prompts */

    /* The queue's fields. */
    uint32_t weight;
    uint32_t answer_most; /* greatest answer_max of the subtree */
    uint32_t below_count; /* items of the subtree */
    uint64_t sweep;
    uint64_t arrival;
    struct waiting_item *left;
    struct waiting_item *right;
};

/* The items of a sweep that share at least `blocks` whole blocks with `item`, one of them. They
 * stand next to each other in the treap. */
struct waiting_near {
    struct waiting_item *item; /* NULL: no items */
    uint32_t blocks;
};

/* All zero is an empty queue. */
struct waiting {
    struct waiting_item *root;
    struct waiting_item *first; /* the item to begin next; NULL for an empty queue */
    struct waiting_near near;   /* those of the last item that began */
    uint32_t count;
    uint64_t arrivals;
    uint64_t sweep_next;    /* the sweep of arrivals; the current sweep is the one before it */
    uint32_t joins_allowed; /* arrivals that may still join the current sweep */
};

/* Sets the queue's fields of `item` and queues it. */
void waiting_add(struct waiting *waiting, struct waiting_item *item);
/* The item to begin next, which stays queued; NULL for an empty queue. */
struct waiting_item *waiting_first(const struct waiting *waiting);
/* Takes the first item out because it begins. */
void waiting_begin_first(struct waiting *waiting);
/* Takes out any queued item because it was cancelled. */
void waiting_remove(struct waiting *waiting, struct waiting_item *item);

/* The place where the first items leave `item`, queued or not, behind its first `from` tokens: all
 * *ret_count queued items of its sweep that have more than `from` leading tokens in common with it
 * have so many, and one of them has no more. 0: no item has more than `from`. */
uint32_t waiting_branch(const struct waiting *waiting, const struct waiting_item *item,
                        uint32_t from, uint32_t *ret_count);

/* Compares in lexicographic order, a prefix before the longer list: negative, 0 or positive. */
int waiting_compare_tokens(const int32_t *a, uint32_t a_count, const int32_t *b, uint32_t b_count);
