/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* reuse: equal requests whose answer is determined run once.
 *
 * A line whose key is in the result cache gets that answer. A line whose key is in flight follows
 * it. Any other line becomes the leader of its key until its slot is free. Its followers are then
 * pending lines of their batches again: they find the answer in the cache, or one of them leads.
 *
 * Only answers of workers with an identity (worker_ops.identity) are used again, and only
 * successes, because an error may pass.
 *
 * Thread: as each function says; guarded by the runner's lock.
 * Memory: at most followers_max followers.
 * Invariant: a follower is in no slot and is no pending line. */

#include "batch/line.h"
#include "store/result_cache.h"

struct runner;
struct active_batch;
struct slot;

#define REUSE_BUCKETS 4096

struct reuse {
    struct result_cache *cache; /* NULL: every line runs */
    struct slot *leaders[REUSE_BUCKETS];
    uint32_t followers;
    uint32_t followers_max;
    /* The identity that workers told last; the dispatch thread's alone. */
    char model[256];
    bool has_identity;
    unsigned char identity[32];
    int64_t identity_due_ns;
    struct buf body;
};

enum reuse_choice {
    REUSE_RUN,       /* a worker must run it */
    REUSE_COMMITTED, /* the cache had its answer; the slot is COMMITTING */
    REUSE_FOLLOWS,   /* it waits for its leader; the caller frees the slot */
    REUSE_FULL,      /* followers_max lines wait already */
};

/* Called by the dispatch thread, without the lock. The slot is PLACING. */
enum reuse_choice reuse_line(struct runner *runner, struct slot *slot,
                             const struct batch_line *line, struct str model);
