/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* order: which batch gives the next lines. The choice goes by
 *
 *   1. the tier, soonest first;
 *   2. hurried batches before others, the earliest deadline first;
 *   3. the lower priority number;
 *   4. the pool that was chosen longest ago; a pool is all batches of one model;
 *   5. inside a pool, the batch that was served least, in the cost of its lines;
 *   6. the older batch.
 *
 * Rule 5 is start-time fair queueing. A batch that joins starts level with the least served of its
 * equals. So a small batch next to a huge one gets every second turn and ends soon.
 *
 * A batch is hurried if it will miss its deadline at its measured rate, and the time left is less
 * than three times what it would take with the whole rate of its pool. A batch that would miss it
 * even then is late and not hurried: it would take the time from batches that can meet theirs.
 *
 * Knows no line, no worker, no thread and no clock: times are arguments.
 *
 * Thread: one at a time (the runner's lock).
 * Memory: entries are the caller's, from order_add to order_remove.
 * Invariant: the order is total, so the choice depends on nothing else. */

#include "base/err.h"

#include <stdint.h>

#define ORDER_POOLS_MAX 64

/* A rate of about the last minute: both decay with time. */
struct order_rate {
    double amount;
    double seconds;
};

struct order_entry {
    /* Set by the owner before order_add. */
    void *owner;
    uint64_t age; /* lower is older; unique */
    uint32_t tier;
    int32_t priority;
    uint64_t pool; /* a hash of the model's name */
    int64_t deadline_unix_s;
    /* Kept by the owner for order_tend. */
    uint64_t lines_done;
    uint64_t lines_total;
    double line_cost; /* mean cost of a line */

    /* Kept by the order. */
    struct order_entry *next;
    uint32_t pool_index;
    double served;
    bool is_hurried;
    bool is_late; /* even alone it would miss its deadline */
    uint64_t lines_seen;
    struct order_rate rate; /* in lines */
};

struct order_pool {
    uint64_t key;
    uint32_t members;
    uint64_t chosen;        /* the number of its last choice */
    double tended;          /* cost done since order_tend */
    struct order_rate rate; /* in cost */
};

/* Zero is an empty order. */
struct order {
    struct order_entry *entries;
    struct order_pool pools[ORDER_POOLS_MAX];
    uint64_t choices;
    int64_t tended_ns;
};

/* True if lines of the batch may be given now. */
typedef bool (*order_allows_fn)(void *context, const struct order_entry *entry);

void order_add(struct order *order, struct order_entry *entry);
/* An entry that is not in the order is ignored. */
void order_remove(struct order *order, struct order_entry *entry);
/* The batch that gives the next lines; NULL if none is allowed to. */
struct order_entry *order_choose(struct order *order, order_allows_fn allows, void *context);
/* Lines of this cost were given to a worker. */
void order_charge(struct order_entry *entry, double cost);
/* Measures the lines done since the last call and decides which batches are hurried; called about
 * once per second. True if that has changed. */
bool order_tend(struct order *order, int64_t now_ns, int64_t now_unix_s);
