/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* nodes: machines that have the workers and outlive the server, with the bus between. The agents
 * and the fleet are the product's, the bus is bus_memory with its faults.
 *
 * All lives of such a plan are in one process: the server is a group of threads, which a death
 * takes away wherever they were, with all that they held. Its memory stays, as no one's. SQLite's
 * connections are part of that; its locks between connections are the rig's (vfs).
 *
 * Thread: the simulated ones of a run.
 * Memory: a bus; agents; what each dead server had. */

#include "runner/runner.h"
#include "workers/fleet/fleet.h"
#include "world.h"

/* One life after another, as long as the plan takes. Ends the process. */
void nodes_run(void) __attribute__((noreturn));
/* The server ends here and now: without nodes with its process. */
void nodes_die(enum life_end how) __attribute__((noreturn));
/* What a server has of the nodes. */
struct fleet *nodes_open_fleet(struct runner *runner);
/* Lines may run twice from now on. */
void nodes_trouble(enum queue_trouble trouble, int64_t ms);
/* NULL without nodes. */
struct worker *nodes_worker(uint32_t index);
