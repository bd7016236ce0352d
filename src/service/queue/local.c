/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/local.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct range {
    uint32_t first;
    uint32_t count;
};

/* Free places of one batch: ranges in order that neither overlap nor touch. */
struct entry {
    struct queue_work work;
    struct range *ranges;
    size_t range_count;
    size_t range_capacity;
};

struct local {
    struct queue queue;
    struct entry *entries;
    size_t count;
    size_t capacity;
};

static struct local *local_of(struct queue *queue) {
    return (struct local *)queue;
}

static struct entry *find(struct local *local, uint64_t batch) {
    for (size_t i = 0; i < local->count; i++)
        if (local->entries[i].work.batch == batch) return &local->entries[i];
    return NULL;
}

static void insert_range(struct entry *entry, size_t at, struct range range) {
    entry->ranges =
        vec_grow(entry->ranges, entry->range_count, &entry->range_capacity, sizeof *entry->ranges);
    assert(entry->ranges);
    memmove(&entry->ranges[at + 1], &entry->ranges[at],
            (entry->range_count - at) * sizeof *entry->ranges);
    entry->ranges[at] = range;
    entry->range_count++;
}

static void remove_range(struct entry *entry, size_t at) {
    assert(entry->ranges && at < entry->range_count);
    entry->range_count--;
    memmove(&entry->ranges[at], &entry->ranges[at + 1],
            (entry->range_count - at) * sizeof *entry->ranges);
}

/* The first range that ends behind the place. */
static size_t range_behind(const struct entry *entry, uint32_t place) {
    size_t low = 0, high = entry->range_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct range *range = &entry->ranges[middle];
        if (range->first + range->count > place)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void local_add(struct queue *queue, const struct queue_work *work) {
    struct local *local = local_of(queue);
    assert(!find(local, work->batch));
    local->entries =
        vec_grow(local->entries, local->count, &local->capacity, sizeof *local->entries);
    struct entry *entry = &local->entries[local->count++];
    *entry = (struct entry){.work = *work};
    if (work->count > 0) insert_range(entry, 0, (struct range){0, work->count});
}

static void local_remove(struct queue *queue, uint64_t batch) {
    struct local *local = local_of(queue);
    struct entry *entry = find(local, batch);
    if (!entry) return;
    free(entry->ranges);
    *entry = local->entries[--local->count];
}

static bool local_take(struct queue *queue, uint64_t batch, uint32_t from, uint32_t count_max,
                       struct queue_lease *ret_lease) {
    struct entry *entry = find(local_of(queue), batch);
    assert(count_max > 0);
    if (!entry || entry->range_count == 0) return false;
    size_t at = range_behind(entry, from);
    if (at == entry->range_count) at = from = 0;
    struct range range = entry->ranges[at];
    uint32_t first = from > range.first ? from : range.first;
    uint32_t before = first - range.first, rest = range.count - before;
    uint32_t count = rest < count_max ? rest : count_max;
    *ret_lease = (struct queue_lease){batch, first, count, entry->work.epoch};
    struct range behind = {first + count, rest - count};
    if (before > 0 && behind.count > 0) {
        entry->ranges[at].count = before;
        insert_range(entry, at + 1, behind);
    } else if (before > 0) {
        entry->ranges[at].count = before;
    } else if (behind.count > 0) {
        entry->ranges[at] = behind;
    } else {
        remove_range(entry, at);
    }
    return true;
}

static void local_give_back(struct queue *queue, const struct queue_lease *lease) {
    struct entry *entry = find(local_of(queue), lease->batch);
    if (!entry || entry->work.epoch != lease->epoch || lease->count == 0) return;
    uint32_t end = lease->first + lease->count;
    assert(end <= entry->work.count);
    size_t at = range_behind(entry, lease->first);
    assert(at == entry->range_count || entry->ranges[at].first >= end);
    struct range *before = at > 0 ? &entry->ranges[at - 1] : NULL;
    struct range *behind = at < entry->range_count ? &entry->ranges[at] : NULL;
    bool touches_before = before && before->first + before->count == lease->first;
    bool touches_behind = behind && behind->first == end;
    if (touches_before && touches_behind) {
        before->count += lease->count + behind->count;
        remove_range(entry, at);
    } else if (touches_before) {
        before->count += lease->count;
    } else if (touches_behind) {
        behind->first = lease->first;
        behind->count += lease->count;
    } else {
        insert_range(entry, at, (struct range){lease->first, lease->count});
    }
}

static void local_close(struct queue *queue) {
    struct local *local = local_of(queue);
    for (size_t i = 0; i < local->count; i++) free(local->entries[i].ranges);
    free(local->entries);
    free(local);
}

static const struct queue_ops local_ops = {
    .add = local_add,
    .remove = local_remove,
    .take = local_take,
    .give_back = local_give_back,
    .close = local_close,
};

enum err queue_local_open(struct queue **ret_queue, struct error *error) {
    (void)error;
    struct local *local = mem_new(1, sizeof *local);
    local->queue.ops = &local_ops;
    *ret_queue = &local->queue;
    return OK;
}
