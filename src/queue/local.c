/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct range {
    uint32_t first;
    uint32_t count;
};

struct entry {
    struct queue_work work;
    uint32_t next; /* the first place never leased */
    struct range *returned;
    size_t returned_count;
    size_t returned_capacity;
};

struct local {
    struct queue queue;
    struct entry *entries; /* in the order in which they are served */
    size_t count;
    size_t capacity;
};

static struct local *local_of(struct queue *queue) {
    return (struct local *)queue;
}

static bool is_sooner(const struct queue_work *a, const struct queue_work *b) {
    if (a->tier != b->tier) return a->tier < b->tier;
    if (a->priority != b->priority) return a->priority < b->priority;
    return a->batch < b->batch;
}

static struct entry *find(struct local *local, uint64_t batch) {
    for (size_t i = 0; i < local->count; i++)
        if (local->entries[i].work.batch == batch) return &local->entries[i];
    return NULL;
}

static void local_add(struct queue *queue, const struct queue_work *work) {
    struct local *local = local_of(queue);
    assert(!find(local, work->batch));
    if (local->count == local->capacity) {
        local->capacity = local->capacity ? 2 * local->capacity : 16;
        local->entries = realloc(local->entries, local->capacity * sizeof *local->entries);
        if (!local->entries) abort();
    }
    size_t at = local->count++;
    for (; at > 0 && is_sooner(work, &local->entries[at - 1].work); at--)
        local->entries[at] = local->entries[at - 1];
    local->entries[at] = (struct entry){.work = *work};
}

static void local_remove(struct queue *queue, uint64_t batch) {
    struct local *local = local_of(queue);
    struct entry *entry = find(local, batch);
    if (!entry) return;
    free(entry->returned);
    size_t after = local->count - (size_t)(entry - local->entries) - 1;
    memmove(entry, entry + 1, after * sizeof *entry);
    local->count--;
}

/* Takes from the range at its front. */
static void take_front(struct range *range, uint32_t count_max, struct queue_lease *ret_lease) {
    uint32_t count = range->count < count_max ? range->count : count_max;
    ret_lease->first = range->first;
    ret_lease->count = count;
    range->first += count;
    range->count -= count;
}

static bool local_take(struct queue *queue, uint32_t count_max, queue_allows_fn allows,
                       void *context, struct queue_lease *ret_lease) {
    struct local *local = local_of(queue);
    assert(count_max > 0);
    for (size_t i = 0; i < local->count; i++) {
        struct entry *entry = &local->entries[i];
        struct range rest = {entry->next, entry->work.count - entry->next};
        if (entry->returned_count == 0 && rest.count == 0) continue;
        if (!allows(context, entry->work.batch)) continue;
        ret_lease->batch = entry->work.batch;
        ret_lease->epoch = entry->work.epoch;
        if (entry->returned_count > 0) {
            struct range *range = &entry->returned[entry->returned_count - 1];
            take_front(range, count_max, ret_lease);
            if (range->count == 0) entry->returned_count--;
        } else {
            take_front(&rest, count_max, ret_lease);
            entry->next = rest.first;
        }
        return true;
    }
    return false;
}

static void local_give_back(struct queue *queue, const struct queue_lease *lease) {
    struct entry *entry = find(local_of(queue), lease->batch);
    if (!entry || entry->work.epoch != lease->epoch || lease->count == 0) return;
    assert(lease->first + lease->count <= entry->next);
    if (entry->returned_count == entry->returned_capacity) {
        entry->returned_capacity = entry->returned_capacity ? 2 * entry->returned_capacity : 4;
        entry->returned =
            realloc(entry->returned, entry->returned_capacity * sizeof *entry->returned);
        if (!entry->returned) abort();
    }
    entry->returned[entry->returned_count++] = (struct range){lease->first, lease->count};
}

static void local_close(struct queue *queue) {
    struct local *local = local_of(queue);
    for (size_t i = 0; i < local->count; i++) free(local->entries[i].returned);
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
    struct local *local = calloc(1, sizeof *local);
    if (!local) abort();
    local->queue.ops = &local_ops;
    *ret_queue = &local->queue;
    return OK;
}
