/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* peers: which seats have a worker that serves a model, as asked lately.
 *
 * An error of a worker is believed, and a sick worker spared, by what others could do. So they are
 * asked what they serve: a worker that has had no line yet counts like any other. A worker is asked
 * at most ten times per second for one model.
 *
 * Thread: the dispatch thread, without the runner's lock.
 * Memory: PEERS_KEPT models, inside struct runner. */

#include "base/str.h"

#include <stdint.h>

#define PEERS_KEPT 16

struct runner;

/* Zero is a valid start. */
struct peers {
    struct {
        uint64_t key; /* knows the model again; 0: free */
        uint64_t seats;
        int64_t asked_ns;
    } kept[PEERS_KEPT];
};

/* A bit per seat whose worker serves the model. */
uint64_t peers_find(struct runner *runner, struct str model);
