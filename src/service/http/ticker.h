/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ticker: ends a wait of the HTTP library's thread that it should not have begun.
 *
 * libmicrohttpd takes at most 128 events from epoll at once. After exactly 128 it asks for more
 * before it looks at those, and waits for them without a limit (0.9.75, and 1.0 too). Their
 * requests stay unanswered until the thread gets another event: for ever, next to connections that
 * are all stuck. So a thread with enough connections for that gets an event of ours at each tick of
 * the gate.
 *
 * Thread: any, except for ticker_open and ticker_close.
 * Memory: a descriptor.
 * Invariant: the library's thread has at most as many connections as are counted. */

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>

struct MHD_Daemon;

struct ticker {
    int event;
    atomic_uint connections; /* connections in the library's thread */
};

/* Adds the event to the epoll set of a daemon that has no connections yet. */
enum err ticker_open(struct ticker *ticker, struct MHD_Daemon *daemon,
                     struct error *error) MUST_CHECK;
/* The thread is about to have one connection more. */
void ticker_add(struct ticker *ticker);
/* It has one less, or the latest was not added. */
void ticker_remove(struct ticker *ticker);
/* False if the thread has too few connections to need a tick. */
bool ticker_tick(struct ticker *ticker);
/* Once the daemon has been stopped. Also after an error of ticker_open. */
void ticker_close(struct ticker *ticker);
