/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* net_sse: splits the bytes of an event stream into the data of its events, as the WHATWG's
 * "Server-sent events" defines them. Knows no socket and no JSON.
 *
 * Thread: one struct, one thread.
 * Memory: the caller's bufs, whose maximum bounds an event. */

#include "base/buf.h"

/* Zero but for `data` and `line`, which are made with buf_init, is a valid start. */
struct net_sse {
    struct buf line, data;
    bool has_data;
    bool ended_with_cr;
    bool has_started;
};
/* False from `data` ends the reading. */
typedef bool (*net_sse_fn)(void *context, struct str data);
/* False when `data` said so, or an event is over the maximum of the bufs. */
bool net_sse_feed(struct net_sse *sse, struct str bytes, net_sse_fn data, void *context);
