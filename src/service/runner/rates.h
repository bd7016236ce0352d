/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* rates: how fast each worker answers lines, and how many it may have therefore (queue/pace.h).
 *
 * Only a seat with a peer is bounded: a worker that is the only one of its model has nobody that
 * would run its lines sooner. Workers are peers when their latest jobs were for the same model.
 *
 * Thread: the runner's lock, except rates_measure: the dispatch thread's, without it.
 * Memory: in struct seat. */

#include "queue/pace.h"
#include "runner/seat.h"

/* Looks at all seats; called once per second. */
void rates_measure(struct runner *runner, int64_t now_ns);
/* Its rate was another model's. */
void rates_forget(struct seat *seat);
struct pace_worker rates_worker(const struct seat *seat);
