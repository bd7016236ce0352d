/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* events: lets the plan's events happen at their times, or at the next write of an entry after
 * them, and starts servers again.
 *
 * Thread: events_run runs on the first thread, which belongs to no server. */

#include "plan.h"

/* Starts the servers, lets all events happen, and waits until clients are served again. */
void events_run(void);
/* Clients ask for nothing any more, until all that was under way is over, and a base has swept. */
void events_quiet(void);
/* All processes are gone. */
void events_end(void);
/* The server's write of an entry is at that place: an event that waits for it happens now. */
void events_at(uint32_t server, enum event_place place);
/* The caller, a server's process, ends; it is started again. */
void events_exit(uint32_t server) __attribute__((noreturn));
