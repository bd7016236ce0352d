/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* rig_worker: a worker whose answers, delays, refusals and losses the seed draws.
 *
 * It sees what no real worker can: that a line is with two workers at a time, or comes again after
 * the client has its result. Both are violations.
 *
 * Thread: its own, and those that call the worker's operations.
 * Memory: jobs on the heap. */

#include "protocol/worker.h"

struct worker *rig_worker_open(uint32_t seat, const struct worker_events *events);
/* The engine dies now, with all its jobs. */
void rig_worker_kill(struct worker *worker);
/* It answers nothing for this time, and then loses its connection. */
void rig_worker_silence(struct worker *worker, int64_t ms);
