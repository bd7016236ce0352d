/* SPDX-License-Identifier: Apache-2.0 */
#include "http/places.h"

#include "base/mem.h"

#include <stdlib.h>

#define PLACES_PER_PEER 256u
#define LOOPBACK_LEAVES 8u /* an eighth of all places is kept from loopback */
/* Clients that arrive together leave each other the time to speak. */
#define IDLE_LEAST_MS 1000
/* A client that takes nothing of its answer for so long leaves, too, when places are short. */
#define STALLED_LEAST_MS 10000

/* The account of one address that has connections. */
struct places_peer {
    struct places_peer *next; /* in its bucket */
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
    return (hash ^ hash >> 16) % PLACES_BUCKETS;
}

static struct places_peer *find_peer(const struct places *places, const struct address *address) {
    struct places_peer *peer = places->peers[bucket_of(address)];
    while (peer && !address_equals(&peer->address, address)) peer = peer->next;
    return peer;
}

static struct places_peer *enter_peer(struct places *places, const struct address *address) {
    struct places_peer *peer = find_peer(places, address);
    if (!peer) {
        struct places_peer **bucket = &places->peers[bucket_of(address)];
        peer = mem_new(1, sizeof *peer);
        peer->address = *address;
        peer->next = *bucket;
        *bucket = peer;
    }
    peer->count++;
    return peer;
}

static void leave_peer(struct places *places, struct places_peer *peer) {
    if (--peer->count > 0) return;
    struct places_peer **at = &places->peers[bucket_of(&peer->address)];
    while (*at != peer) at = &(*at)->next;
    *at = peer->next;
    free(peer);
}

/* --- the list --- */

static void put_last(struct places *places, struct gate_connection *c) {
    c->previous = places->last;
    c->next = NULL;
    if (places->last)
        places->last->next = c;
    else
        places->first = c;
    places->last = c;
}

static void take_out(struct places *places, struct gate_connection *c) {
    if (c->previous)
        c->previous->next = c->next;
    else
        places->first = c->next;
    if (c->next)
        c->next->previous = c->previous;
    else
        places->last = c->previous;
}

void places_add(struct places *places, struct gate_connection *c) {
    c->place = enter_peer(places, &c->peer);
    places->count++;
    put_last(places, c);
}

bool places_is_crowded(const struct gate_connection *c) {
    return c->place->count > PLACES_CROWD;
}

void places_remove(struct places *places, struct gate_connection *c) {
    take_out(places, c);
    places->count--;
    leave_peer(places, c->place);
}

void places_renew(struct places *places, struct gate_connection *c) {
    take_out(places, c);
    put_last(places, c);
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
static struct gate_connection *longest_idle(const struct places *places,
                                            const struct places_peer *peer, int64_t at_ms) {
    struct gate_connection *c = places->first;
    for (; c && at_ms - c->served_ms >= IDLE_LEAST_MS; c = c->next)
        if ((!peer || c->place == peer) && may_leave(c, at_ms)) return c;
    return NULL;
}

bool places_find(const struct places *places, const struct gate_options *options,
                 const struct address *peer, int64_t at_ms, struct gate_connection **ret_leaves) {
    const struct places_peer *same = find_peer(places, peer);
    bool is_at_bound = (same ? same->count : 0) >= places_of(options, peer);
    *ret_leaves = NULL;
    if (!is_at_bound && places->count < options->connections_max) return true;
    *ret_leaves = longest_idle(places, is_at_bound ? same : NULL, at_ms);
    return *ret_leaves != NULL;
}
