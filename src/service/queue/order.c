/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/order.h"

#include <assert.h>
#include <float.h>
#include <stddef.h>

#define RATE_SECONDS 60.0   /* the time over which a rate is averaged */
#define JUDGED_SECONDS 5.0  /* a rate counts after 5 s of measuring */
#define HURRY_FACTOR 3.0    /* hurried only if its time alone, so often, exceeds the time left */
#define RELAX_FACTOR 4.0    /* hurried until its time alone, so often, fits into the time left */
#define MEETS_SHARE 0.75    /* or until its own rate ends it within this share of the time left */
#define HOPELESS_FACTOR 1.1 /* late only this far over, because a measured rate is no promise */

/* --- membership --- */

static uint32_t pool_of(struct order *order, uint64_t key) {
    uint32_t free_index = ORDER_POOLS_MAX - 1; /* too many models share the last one */
    for (uint32_t i = ORDER_POOLS_MAX; i-- > 0;) {
        struct order_pool *pool = &order->pools[i];
        if (pool->members > 0 && pool->key == key) return i;
        if (pool->members == 0) free_index = i;
    }
    if (order->pools[free_index].members == 0)
        order->pools[free_index] = (struct order_pool){.key = key};
    return free_index;
}

static bool are_equals(const struct order_entry *a, const struct order_entry *b) {
    return a->tier == b->tier && a->priority == b->priority && a->pool_index == b->pool_index;
}

void order_add(struct order *order, struct order_entry *entry) {
    entry->pool_index = pool_of(order, entry->pool);
    entry->is_hurried = entry->is_late = false;
    entry->rate = (struct order_rate){0};
    entry->lines_seen = entry->lines_done;
    double least = DBL_MAX;
    for (struct order_entry *other = order->entries; other; other = other->next)
        if (are_equals(entry, other) && other->served < least) least = other->served;
    entry->served = least < DBL_MAX ? least : 0;
    entry->next = order->entries;
    order->entries = entry;
    order->pools[entry->pool_index].members++;
}

void order_remove(struct order *order, struct order_entry *entry) {
    struct order_entry **at = &order->entries;
    while (*at && *at != entry) at = &(*at)->next;
    if (!*at) return;
    *at = entry->next;
    entry->next = NULL;
    order->pools[entry->pool_index].members--;
}

/* --- the choice --- */

static bool is_sooner(const struct order *order, const struct order_entry *a,
                      const struct order_entry *b) {
    if (a->tier != b->tier) return a->tier < b->tier;
    if (a->is_hurried != b->is_hurried) return a->is_hurried;
    if (a->is_hurried && a->deadline_unix_s != b->deadline_unix_s)
        return a->deadline_unix_s < b->deadline_unix_s;
    if (a->priority != b->priority) return a->priority < b->priority;
    if (a->pool_index != b->pool_index) {
        uint64_t of_a = order->pools[a->pool_index].chosen;
        uint64_t of_b = order->pools[b->pool_index].chosen;
        if (of_a != of_b) return of_a < of_b;
        return a->pool_index < b->pool_index;
    }
    if (a->served != b->served) return a->served < b->served;
    return a->age < b->age;
}

struct order_entry *order_choose(struct order *order, order_allows_fn allows, void *context) {
    struct order_entry *best = NULL;
    for (struct order_entry *entry = order->entries; entry; entry = entry->next)
        if ((!best || is_sooner(order, entry, best)) && allows(context, entry)) best = entry;
    if (best) order->pools[best->pool_index].chosen = ++order->choices;
    return best;
}

void order_charge(struct order_entry *entry, double cost) {
    entry->served += cost;
}

/* --- measuring --- */

static void rate_add(struct order_rate *rate, double amount, double seconds) {
    double kept = RATE_SECONDS / (RATE_SECONDS + seconds);
    rate->amount = rate->amount * kept + amount;
    rate->seconds = rate->seconds * kept + seconds;
}

/* Seconds that `amount` takes at the rate; DBL_MAX when nothing is done. */
static double rate_seconds(const struct order_rate *rate, double amount) {
    if (amount <= 0) return 0;
    return rate->amount > 0 ? amount * (rate->seconds / rate->amount) : DBL_MAX;
}

static double lines_left(const struct order_entry *entry) {
    return entry->lines_total > entry->lines_done ? (double)(entry->lines_total - entry->lines_done)
                                                  : 0;
}

/* True when `is_hurried` or `is_late` has changed. */
static bool judge(const struct order *order, struct order_entry *entry, int64_t now_unix_s) {
    const struct order_pool *pool = &order->pools[entry->pool_index];
    if (entry->rate.seconds < JUDGED_SECONDS || pool->rate.seconds < JUDGED_SECONDS) return false;
    double left_s = (double)(entry->deadline_unix_s - now_unix_s);
    double own_s = rate_seconds(&entry->rate, lines_left(entry));
    double alone_s = rate_seconds(&pool->rate, lines_left(entry) * entry->line_cost);
    bool was_hurried = entry->is_hurried, was_late = entry->is_late;
    /* A pool without progress is not measured: no batch is late because an engine loads. */
    bool is_known = pool->rate.amount > 0;
    entry->is_late = is_known && alone_s > left_s * HOPELESS_FACTOR;
    if (entry->is_late)
        entry->is_hurried = false;
    else if (was_hurried)
        entry->is_hurried = own_s > left_s * MEETS_SHARE && alone_s * RELAX_FACTOR > left_s;
    else
        entry->is_hurried = is_known && own_s > left_s && alone_s * HURRY_FACTOR > left_s;
    return entry->is_hurried != was_hurried || entry->is_late != was_late;
}

bool order_tend(struct order *order, int64_t now_ns, int64_t now_unix_s) {
    double seconds = (double)(now_ns - order->tended_ns) / 1e9;
    bool is_first = order->tended_ns == 0, has_changed = false;
    order->tended_ns = now_ns;
    for (struct order_entry *entry = order->entries; entry; entry = entry->next) {
        double lines = entry->lines_done > entry->lines_seen
                           ? (double)(entry->lines_done - entry->lines_seen)
                           : 0;
        entry->lines_seen = entry->lines_done;
        if (is_first || seconds <= 0) continue;
        rate_add(&entry->rate, lines, seconds);
        order->pools[entry->pool_index].tended += lines * entry->line_cost;
    }
    if (is_first || seconds <= 0) return false;
    for (uint32_t i = 0; i < ORDER_POOLS_MAX; i++) {
        if (order->pools[i].members > 0)
            rate_add(&order->pools[i].rate, order->pools[i].tended, seconds);
        order->pools[i].tended = 0;
    }
    for (struct order_entry *entry = order->entries; entry; entry = entry->next)
        has_changed |= judge(order, entry, now_unix_s);
    return has_changed;
}
