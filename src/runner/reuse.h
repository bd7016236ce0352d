/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* reuse: equal requests whose answer is determined run once. A line whose key is in the result
 * cache gets that answer; one whose key is being computed waits for it; any other becomes the
 * leader of its key until its slot is free again. A leader that ends without an answer leaves its
 * followers to run: the first of them leads then.
 *
 * Only answers of workers that say what they compute (worker_ops.identity) are used again, and only
 * successes: an error may have been of its moment.
 *
 * Thread: as each function says; guarded by the runner's lock.  Memory: followers are bounded by
 * followers_max.  Invariant: a follower is in no slot and in no retry list. */

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
    /* Of the dispatch thread: the identity it was told last. */
    char model[256];
    bool has_identity;
    unsigned char identity[32];
    int64_t identity_due_ns;
    struct buf body;
};

enum reuse_choice {
    REUSE_RUN,       /* give it to a worker */
    REUSE_COMMITTED, /* its record is with the writer; the slot is committing */
    REUSE_FOLLOWS,   /* it waits for its leader: the slot is to be freed */
    REUSE_FULL,      /* too many wait already */
};

/* For the dispatch thread, without the lock. The slot is placing. */
enum reuse_choice reuse_line(struct runner *runner, struct slot *slot,
                             const struct batch_line *line, struct str model);
/* The answer of a leader, before its record is put; any thread, without the lock. */
void reuse_keep(struct runner *runner, const struct slot *slot, struct str body);
/* The slot is about to be free: its followers may run. The lock is held. */
void reuse_leave(struct runner *runner, struct slot *slot);
/* The batch stops: its followers are forgotten. The lock is held. */
void reuse_forget(struct runner *runner, struct active_batch *batch);
