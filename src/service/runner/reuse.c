/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/reuse.h"

#include "base/clock.h"
#include "base/mem.h"
#include "batch/request_key.h"
#include "runner/leaders.h"
#include "runner/models.h"
#include "runner/results.h"
#include "runner/runner_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define IDENTITY_NS 1000000000 /* until a worker is asked again */

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
    struct slot *leader = leader_find(reuse, key);
    if (!leader) {
        leader_add(reuse, slot, key);
    } else if (reuse->followers >= reuse->followers_max) {
        choice = REUSE_FULL;
    } else if (slot->batch->phase == PHASE_RUN) {
        leader_follow(reuse, leader, slot);
        choice = REUSE_FOLLOWS;
    }
    pthread_mutex_unlock(&runner->lock);
    return choice;
}
