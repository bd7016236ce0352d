/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sse: splits the bytes of an event stream into the data of its events, as the WHATWG's
 * "Server-sent events" defines them.
 *
 * Knows no socket and no JSON.
 *
 * Thread: one struct, one thread.
 * Memory: the caller's bufs; their maximum bounds an event. */

#include "base/buf.h"

/* Zero is a valid start, except for `line` and `data`, which buf_init makes. */
struct net_sse {
    struct buf line, data;
    bool has_data;
    bool ended_with_cr;
    bool has_started;
};
/* Takes the data of an event; false ends the reading. */
typedef bool (*net_sse_fn)(void *context, struct str data);
/* False if `data` returned false, or an event is longer than the maximum of the bufs. */
bool net_sse_feed(struct net_sse *sse, struct str bytes, net_sse_fn data, void *context);
