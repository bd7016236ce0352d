/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/leaders.h"

#include "base/mem.h"
#include "runner/runner_internal.h"

#include <stdlib.h>
#include <string.h>

struct waiter {
    struct waiter *next;
    struct active_batch *batch;
    struct line_state line;
};

static struct slot **bucket(struct reuse *reuse, const unsigned char *key) {
    uint32_t word;
    memcpy(&word, key, sizeof word);
    return &reuse->leaders[word % REUSE_BUCKETS];
}

struct slot *leader_find(struct reuse *reuse, const unsigned char *key) {
    struct slot *slot = *bucket(reuse, key);
    while (slot && memcmp(slot->key, key, sizeof slot->key) != 0) slot = slot->next_leader;
    return slot;
}

void leader_add(struct reuse *reuse, struct slot *slot, const unsigned char *key) {
    struct slot **head = bucket(reuse, key);
    memcpy(slot->key, key, sizeof slot->key);
    slot->is_leader = true;
    slot->next_leader = *head;
    *head = slot;
}

void leader_follow(struct reuse *reuse, struct slot *leader, const struct slot *slot) {
    struct waiter *waiter = mem_alloc(sizeof *waiter);
    *waiter = (struct waiter){leader->waiters, slot->batch, slot->line};
    leader->waiters = waiter;
    reuse->followers++;
}

void leader_leave(struct runner *runner, struct slot *slot) {
    if (!slot->is_leader) return;
    struct slot **at = bucket(&runner->reuse, slot->key);
    while (*at != slot) at = &(*at)->next_leader;
    *at = slot->next_leader;
    slot->is_leader = false;
    for (struct waiter *waiter = slot->waiters, *next; waiter; waiter = next) {
        next = waiter->next;
        active_put_back(waiter->batch, &waiter->line);
        waiter->batch->blocked_at = UINT64_MAX;
        free(waiter);
        runner->reuse.followers--;
        runner->progress++;
    }
    if (slot->waiters) pthread_cond_signal(&runner->work);
    slot->waiters = NULL;
}

void leaders_forget(struct runner *runner, struct active_batch *batch) {
    struct reuse *reuse = &runner->reuse;
    for (size_t i = 0; i < REUSE_BUCKETS && reuse->followers > 0; i++) {
        for (struct slot *slot = reuse->leaders[i]; slot; slot = slot->next_leader) {
            struct waiter **at = &slot->waiters;
            while (*at) {
                struct waiter *waiter = *at;
                if (waiter->batch != batch) {
                    at = &waiter->next;
                    continue;
                }
                *at = waiter->next;
                free(waiter);
                reuse->followers--;
            }
        }
    }
}

void leader_keep(struct runner *runner, const struct slot *slot, struct str body,
                 enum shape_end shape) {
    const struct result_cache_facts facts = {slot->usage, shape};
    if (slot->is_leader)
        result_cache_put(runner->reuse.cache, slot->key, slot->batch->row.id, body, &facts);
}
