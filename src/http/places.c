/* SPDX-License-Identifier: Apache-2.0 */
#include "http/places.h"

#define PLACES_PER_PEER 256u
#define LOOPBACK_LEAVES 8u /* an eighth of all places is kept from loopback */
/* Clients that arrive together leave each other the time to speak. */
#define IDLE_LEAST_MS 1000
/* A client that takes nothing of its answer for so long leaves, too, when places are short. */
#define STALLED_LEAST_MS 10000

/* A machine's own programs may take nearly all places. */
static uint32_t places_of(const struct gate_options *options, const struct address *peer) {
    uint32_t most = options->connections_max;
    if (options->connections_per_peer_max) return options->connections_per_peer_max;
    return address_is_loopback(peer) ? most - most / LOOPBACK_LEAVES : PLACES_PER_PEER;
}

/* Waits for a request, has its last answer, or has not taken a byte of its answer for a while. */
static bool may_leave(struct gate_connection *c, int64_t at_ms) {
    return relay_is_idle(c) || c->lingering ||
           (c->stalled_ms != 0 && at_ms - c->stalled_ms >= STALLED_LEAST_MS);
}

/* The connection that has been idle longest, of `peer` or (NULL) of any; NULL if none has been for
 * IDLE_LEAST_MS. */
static struct gate_connection *longest_idle(struct gate_connection *connections,
                                            const struct address *peer, int64_t at_ms) {
    struct gate_connection *longest = NULL;
    for (struct gate_connection *c = connections; c; c = c->next) {
        if (!may_leave(c, at_ms) || (peer && !address_equals(&c->peer, peer))) continue;
        if (!longest || c->served_ms < longest->served_ms) longest = c;
    }
    return longest && at_ms - longest->served_ms >= IDLE_LEAST_MS ? longest : NULL;
}

bool places_find(const struct gate_options *options, struct gate_connection *connections,
                 const struct address *peer, int64_t at_ms, struct gate_connection **ret_leaves) {
    uint32_t all = 0, same = 0;
    for (struct gate_connection *c = connections; c; c = c->next) {
        all++;
        if (address_equals(&c->peer, peer)) same++;
    }
    *ret_leaves = NULL;
    if (same < places_of(options, peer) && all < options->connections_max) return true;
    *ret_leaves = longest_idle(connections, same >= places_of(options, peer) ? peer : NULL, at_ms);
    return *ret_leaves != NULL;
}
