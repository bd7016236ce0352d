/* SPDX-License-Identifier: Apache-2.0 */
#include "http/connection_limits.h"

#include "base/mem.h"

#include <stdlib.h>

#define PLACES_PER_PEER 256u
#define LOOPBACK_LEAVES 8u /* an eighth of all places is kept from loopback */
/* Clients that arrive together leave each other the time to speak. */
#define IDLE_LEAST_MS 1000
/* A client that takes nothing of its answer for so long leaves, too, when places are short. */
#define STALLED_LEAST_MS 10000

/* The account of one address that has connections. */
struct connection_peer {
    struct connection_peer *next; /* in its bucket */
    struct address address;
    uint32_t count;
};

/* --- addresses --- */

/* Addresses that a stranger chose can share a bucket: a look through it takes as many steps as
 * there are connections, at most. */
static size_t bucket_of(const struct address *address) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < sizeof address->bytes; i++)
        hash = (hash ^ address->bytes[i]) * 16777619u;
    return (hash ^ hash >> 16) % CONNECTIONS_BUCKETS;
}

static struct connection_peer *find_peer(const struct connection_limits *limits,
                                         const struct address *address) {
    struct connection_peer *peer = limits->peers[bucket_of(address)];
    while (peer && !address_equals(&peer->address, address)) peer = peer->next;
    return peer;
}

static struct connection_peer *enter_peer(struct connection_limits *limits,
                                          const struct address *address) {
    struct connection_peer *peer = find_peer(limits, address);
    if (!peer) {
        struct connection_peer **bucket = &limits->peers[bucket_of(address)];
        peer = mem_new(1, sizeof *peer);
        peer->address = *address;
        peer->next = *bucket;
        *bucket = peer;
    }
    peer->count++;
    return peer;
}

static void leave_peer(struct connection_limits *limits, struct connection_peer *peer) {
    if (--peer->count > 0) return;
    struct connection_peer **at = &limits->peers[bucket_of(&peer->address)];
    while (*at != peer) at = &(*at)->next;
    *at = peer->next;
    free(peer);
}

/* --- the list --- */

static void put_last(struct connection_limits *limits, struct gate_connection *c) {
    c->previous = limits->last;
    c->next = NULL;
    if (limits->last)
        limits->last->next = c;
    else
        limits->first = c;
    limits->last = c;
}

static void take_out(struct connection_limits *limits, struct gate_connection *c) {
    if (c->previous)
        c->previous->next = c->next;
    else
        limits->first = c->next;
    if (c->next)
        c->next->previous = c->previous;
    else
        limits->last = c->previous;
}

void connection_limits_add(struct connection_limits *limits, struct gate_connection *c) {
    c->place = enter_peer(limits, &c->peer);
    limits->count++;
    put_last(limits, c);
}

bool connection_limits_is_crowded(const struct gate_connection *c) {
    return c->place->count > CONNECTIONS_CROWD;
}

void connection_limits_remove(struct connection_limits *limits, struct gate_connection *c) {
    take_out(limits, c);
    limits->count--;
    leave_peer(limits, c->place);
}

void connection_limits_renew(struct connection_limits *limits, struct gate_connection *c) {
    take_out(limits, c);
    put_last(limits, c);
}

/* --- who has a place --- */

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
static struct gate_connection *longest_idle(const struct connection_limits *limits,
                                            const struct connection_peer *peer, int64_t at_ms) {
    struct gate_connection *c = limits->first;
    for (; c && at_ms - c->served_ms >= IDLE_LEAST_MS; c = c->next)
        if ((!peer || c->place == peer) && may_leave(c, at_ms)) return c;
    return NULL;
}

bool connection_limits_find(const struct connection_limits *limits,
                            const struct gate_options *options, const struct address *peer,
                            int64_t at_ms, struct gate_connection **ret_leaves) {
    const struct connection_peer *same = find_peer(limits, peer);
    bool is_at_bound = (same ? same->count : 0) >= places_of(options, peer);
    *ret_leaves = NULL;
    if (!is_at_bound && limits->count < options->connections_max) return true;
    *ret_leaves = longest_idle(limits, is_at_bound ? same : NULL, at_ms);
    return *ret_leaves != NULL;
}
