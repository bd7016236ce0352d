/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/peers.h"

#include "base/clock.h"
#include "base/crc.h"
#include "runner/models.h"
#include "runner/runner_internal.h"

#define ASKED_NS INT64_C(100000000) /* so long an answer counts */

static uint64_t ask(struct runner *runner, struct str model) {
    char served[MODEL_NAME_BYTES];
    uint64_t seats = 0;
    _Static_assert(RUNNER_WORKERS_MAX <= 64, "a bit per seat");
    pthread_mutex_lock(&runner->lock);
    for (uint32_t i = 0; i < runner->seat_count; i++) {
        struct worker *worker = runner->seats[i].worker;
        pthread_mutex_unlock(&runner->lock);
        if (worker && runner_finds(runner, worker, model, served)) seats |= UINT64_C(1) << i;
        pthread_mutex_lock(&runner->lock);
    }
    pthread_mutex_unlock(&runner->lock);
    return seats;
}

uint64_t peers_find(struct runner *runner, struct str model) {
    uint64_t key = (uint64_t)(model.bytes + 1) << 32 | crc32c(0, model.at, model.bytes);
    size_t at = (uint32_t)key % PEERS_KEPT;
    int64_t now_ns = clock_monotonic_ns();
    if (runner->peers.kept[at].key != key || now_ns - runner->peers.kept[at].asked_ns >= ASKED_NS) {
        runner->peers.kept[at].seats = ask(runner, model);
        runner->peers.kept[at].key = key;
        runner->peers.kept[at].asked_ns = now_ns;
    }
    return runner->peers.kept[at].seats;
}
