/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/reuse.h"

#include "base/clock.h"
#include "base/mem.h"
#include "batch/request_key.h"
#include "runner/models.h"
#include "runner/results.h"
#include "runner/runner_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define IDENTITY_NS 1000000000 /* until a worker is asked again */

struct waiter {
    struct waiter *next;
    struct active_batch *batch;
    struct line_state line;
};

/* --- who computes it --- */

/* Asks the workers that serve the model: any of them may answer, so they must agree. Without the
 * lock. */
static void ask_identity(struct runner *runner, struct str model) {
    struct reuse *reuse = &runner->reuse;
    struct worker *workers[RUNNER_WORKERS_MAX];
    char served[MODEL_NAME_BYTES];
    size_t count = runner_workers(runner, workers);
    reuse->has_identity = false;
    for (size_t i = 0; i < count; i++) {
        if (!runner_finds(runner, workers[i], model, served)) continue;
        unsigned char identity[WORKER_IDENTITY_BYTES];
        bool is_first = !reuse->has_identity;
        reuse->has_identity = workers[i]->ops->identity &&
                              workers[i]->ops->identity(workers[i], str_from(served), identity) &&
                              (is_first || memcmp(identity, reuse->identity, sizeof identity) == 0);
        if (!reuse->has_identity) return;
        memcpy(reuse->identity, identity, sizeof identity);
    }
}

static bool know_identity(struct runner *runner, struct str model) {
    struct reuse *reuse = &runner->reuse;
    int64_t now_ns = clock_monotonic_ns();
    if (model.bytes == 0 || model.bytes >= sizeof reuse->model) return false;
    if (now_ns < reuse->identity_due_ns && str_is(model, reuse->model)) return reuse->has_identity;
    memcpy(reuse->model, model.at, model.bytes);
    reuse->model[model.bytes] = '\0';
    reuse->identity_due_ns = now_ns + IDENTITY_NS;
    ask_identity(runner, model);
    return reuse->has_identity;
}

/* --- leaders: the lock is held --- */

static struct slot **bucket(struct reuse *reuse, const unsigned char *key) {
    uint32_t word;
    memcpy(&word, key, sizeof word);
    return &reuse->leaders[word % REUSE_BUCKETS];
}

static struct slot *find_leader(struct reuse *reuse, const unsigned char *key) {
    struct slot *slot = *bucket(reuse, key);
    while (slot && memcmp(slot->key, key, sizeof slot->key) != 0) slot = slot->next_leader;
    return slot;
}

static void lead(struct reuse *reuse, struct slot *slot, const unsigned char *key) {
    struct slot **head = bucket(reuse, key);
    memcpy(slot->key, key, sizeof slot->key);
    slot->is_leader = true;
    slot->next_leader = *head;
    *head = slot;
}

static void follow(struct reuse *reuse, struct slot *leader, const struct slot *slot) {
    struct waiter *waiter = mem_alloc(sizeof *waiter);
    *waiter = (struct waiter){leader->waiters, slot->batch, slot->line};
    leader->waiters = waiter;
    reuse->followers++;
}

void reuse_leave(struct runner *runner, struct slot *slot) {
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

void reuse_forget(struct runner *runner, struct active_batch *batch) {
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

/* --- lines --- */

static bool commit_cached(struct runner *runner, struct slot *slot, const unsigned char *key) {
    struct reuse *reuse = &runner->reuse;
    struct result_cache_facts facts;
    buf_clear(&reuse->body);
    if (!result_cache_get(reuse->cache, key, &reuse->body, &facts)) return false;
    slot->state = SLOT_COMMITTING; /* no other thread knows the slot yet */
    commit_reused(runner, slot, buf_str(&reuse->body), &facts);
    return true;
}

enum reuse_choice reuse_line(struct runner *runner, struct slot *slot,
                             const struct batch_line *line, struct str model) {
    struct reuse *reuse = &runner->reuse;
    unsigned char key[RESULT_CACHE_KEY_BYTES];
    enum reuse_choice choice = REUSE_RUN;
    /* A line that may have taken an engine down runs by itself. */
    if (!reuse->cache || slot->line.is_suspect || !know_identity(runner, model)) return REUSE_RUN;
    /* Answers are shared inside one owner only: a hit tells that somebody asked before. */
    char who[sizeof reuse->identity + OWNER_BYTES];
    size_t owner_bytes = strlen(slot->batch->row.owner);
    memcpy(who, reuse->identity, sizeof reuse->identity);
    memcpy(who + sizeof reuse->identity, slot->batch->row.owner, owner_bytes);
    struct str identity = {who, sizeof reuse->identity + owner_bytes};
    if (!batch_request_key(line, identity, key)) return REUSE_RUN;
    if (commit_cached(runner, slot, key)) return REUSE_COMMITTED;
    pthread_mutex_lock(&runner->lock);
    struct slot *leader = find_leader(reuse, key);
    if (!leader) {
        lead(reuse, slot, key);
    } else if (reuse->followers >= reuse->followers_max) {
        choice = REUSE_FULL;
    } else if (slot->batch->phase == PHASE_RUN) {
        follow(reuse, leader, slot);
        choice = REUSE_FOLLOWS;
    }
    pthread_mutex_unlock(&runner->lock);
    return choice;
}

void reuse_keep(struct runner *runner, const struct slot *slot, struct str body,
                enum shape_end shape) {
    const struct result_cache_facts facts = {slot->usage, shape};
    if (slot->is_leader) result_cache_put(runner->reuse.cache, slot->key, body, &facts);
}
