/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/machine.h"

#include "base/mem.h"
#include "runner/events.h"
#include "runner/runner_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- workers --- */

static void look_at_upstream(struct runner *runner, size_t index,
                             const struct worker_status *status) {
    static const struct str waiting = {"waiting: ", 9};
    bool *is_up = &runner->machine.seen[index].is_up;
    if (status->ready == *is_up) return;
    *is_up = status->ready;
    struct str why = str_from(status->text);
    if (str_starts_with(why, waiting)) why = str_skip(why, waiting.bytes);
    if (status->ready)
        events_note(runner, HISTORY_UPSTREAM_UP, NULL, NULL, "The upstream %s takes requests.",
                    status->upstream);
    else
        events_note(runner, HISTORY_UPSTREAM_DOWN, NULL, NULL,
                    "The upstream %s takes no requests: %s", status->upstream, why.at);
}

static void look_at_engine(struct runner *runner, size_t index,
                           const struct worker_status *status) {
    char model[MODEL_NAME_BYTES] = "";
    enum model_state state = model_state_of(status);
    bool *is_up = &runner->machine.seen[index].is_up;
    bool *is_failed = &runner->machine.seen[index].is_failed;
    uint64_t *restarts = &runner->machine.seen[index].restarts;
    bool is_back = status->restarts != *restarts;
    (void)runner_worker_model(runner, index, model);
    if (state == MODEL_LOADED && (!*is_up || is_back)) {
        *is_up = true;
        *restarts = status->restarts;
        if (is_back)
            events_note(runner, HISTORY_ENGINE_RESTARTED, NULL, NULL,
                        "The engine of %.150s was started again, and takes requests.", model);
        else
            events_note(runner, HISTORY_MODEL_LOADED, NULL, NULL, "%.150s is loaded.", model);
    } else if (state == MODEL_UNLOADED && *is_up) {
        *is_up = false;
        events_note(runner, HISTORY_MODEL_UNLOADED, NULL, NULL, "%.150s is not loaded any more.",
                    model);
    } else if (state == MODEL_FAILED && !*is_failed) {
        *is_failed = true;
        *is_up = false;
        events_note(runner, HISTORY_MODEL_FAILED, NULL, NULL, "%.80s cannot be loaded: %s", model,
                    status->text);
    }
}

/* --- one look --- */

void machine_look(struct runner *runner, int64_t now_ns) {
    struct worker_status *statuses = mem_new(RUNNER_WORKERS_MAX, sizeof *statuses);
    size_t count = runner_worker_statuses(runner, statuses, RUNNER_WORKERS_MAX);
    struct history_step sums = {0};
    struct store_status disk;
    for (size_t i = 0; i < count; i++) {
        sums.tokens += statuses[i].completion_tokens;
        if (statuses[i].upstream)
            look_at_upstream(runner, i, &statuses[i]);
        else
            look_at_engine(runner, i, &statuses[i]);
    }
    free(statuses);
    pthread_mutex_lock(&runner->lock);
    sums.lines = runner->counters.lines_done;
    pthread_mutex_unlock(&runner->lock);
    history_count(runner->machine.history, now_ns, &sums);
    store_status(runner->store, &disk);
    if (disk.disk_full == runner->machine.is_disk_full) return;
    runner->machine.is_disk_full = disk.disk_full;
    if (disk.disk_full)
        events_note(runner, HISTORY_DISK_FULL, NULL, NULL,
                    "The disk is full: results wait, and uploads are refused.");
    else
        events_note(runner, HISTORY_DISK_HAS_ROOM, NULL, NULL,
                    "The disk has room again: the results that waited are written.");
}

/* --- for the API --- */

struct history *runner_history(struct runner *runner) {
    return runner->machine.history;
}

struct owners {
    struct runner_owner *at;
    size_t count;
    const char *only; /* NULL: all */
};

static struct runner_owner *owner_for(struct owners *owners, const char *name) {
    if (owners->only && strcmp(name, owners->only) != 0) return NULL;
    for (size_t i = 0; i < owners->count; i++)
        if (strcmp(owners->at[i].owner, name) == 0) return &owners->at[i];
    if (owners->count == RUNNER_OWNERS_MAX) return NULL;
    struct runner_owner *owner = &owners->at[owners->count++];
    *owner = (struct runner_owner){.open_batches = 0};
    snprintf(owner->owner, sizeof owner->owner, "%s", name);
    return owner;
}

size_t runner_owners(struct runner *runner, const char *only,
                     struct runner_owner ret_owners[RUNNER_OWNERS_MAX]) {
    struct owners owners = {.at = ret_owners, .only = only};
    struct runner_owner *owner;
    pthread_mutex_lock(&runner->lock);
    for (struct active_batch *batch = runner->batches; batch; batch = batch->next) {
        if (!(owner = owner_for(&owners, batch->row.owner))) continue;
        owner->open_batches++;
        if (batch->phase != PHASE_RUN) continue;
        uint64_t done = active_lines_done(batch);
        owner->queued_lines += batch->row.total > done ? batch->row.total - done : 0;
    }
    for (struct request *request = runner->requests; request; request = request->next)
        if ((owner = owner_for(&owners, request->call.owner))) owner->requests++;
    pthread_mutex_unlock(&runner->lock);
    return owners.count;
}
