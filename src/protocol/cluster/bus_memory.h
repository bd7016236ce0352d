/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bus_memory: the bus inside one process, for tests, with the faults that a real one has.
 *
 * Thread: any; one lock, which is held for no call of others: a thread that is gone in the middle
 *     of one leaves it free (tests/rig).
 * Memory: the packs that were put and not yet read, without a limit. */

#include "cluster/bus.h"

struct bus_memory;

struct bus_memory *bus_memory_open(void);
void bus_memory_close(struct bus_memory *memory); /* NULL is allowed; every bus was closed */
/* For opening buses to it; lives as long as the memory. */
struct bus_place bus_memory_place(struct bus_memory *memory);

/* --- faults --- */
/* While it is away every call fails. */
void bus_memory_set_away(struct bus_memory *memory, bool is_away);
/* Forgets all it has, as FLUSHALL does. */
void bus_memory_empty(struct bus_memory *memory);
/* Forgets the packs of work, or of results, that were not read. */
void bus_memory_lose_work(struct bus_memory *memory);
void bus_memory_lose_results(struct bus_memory *memory);
/* The next trim or forget does not come, and its flush fails, as when a connection is lost. */
void bus_memory_lose_trim(struct bus_memory *memory);
/* Packs of work and results that are there. */
size_t bus_memory_packs(struct bus_memory *memory);
