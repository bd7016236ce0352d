/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* connection_limits: all connections of the gate, whether a new one has a place, and which idle
 * one leaves for it.
 *
 * Each address has a bound, so that one machine cannot take all places. At its own bound an address
 * loses its own longest idle connection, so that a flood of idle connections displaces itself. A
 * client that has taken nothing of its answer for 10 s counts as idle. New connections may come
 * faster than any other event, so that none may cost a look at all others.
 *
 * Thread: the gate's.
 * Memory: a small block per address; the connections are the gate's.
 * Invariant: the list is in the order of `served_ms`; a block's count is that of its address. */

#include "base/address.h"
#include "http/gate.h"
#include "http/relay.h"

/* An address with more connections than this is crowded: few browsers and clients open so many. */
#define CONNECTIONS_CROWD 16
#define CONNECTIONS_BUCKETS 256 /* a quarter of the default of connections_max */

struct connection_limits {
    struct gate_connection *first, *last; /* the first was served longest ago */
    uint32_t count;
    struct connection_peer *peers[CONNECTIONS_BUCKETS];
};

/* True if a connection of `peer` may be made at `at_ms`, once *ret_leaves (NULL: none) is closed.
 */
bool connection_limits_find(const struct connection_limits *limits,
                            const struct gate_options *options, const struct address *peer,
                            int64_t at_ms, struct gate_connection **ret_leaves);
/* Adds a connection whose `served_ms` is now. */
void connection_limits_add(struct connection_limits *limits, struct gate_connection *connection);
/* True if the address of a connection has more than CONNECTIONS_CROWD of them. */
bool connection_limits_is_crowded(const struct gate_connection *connection);
void connection_limits_remove(struct connection_limits *limits, struct gate_connection *connection);
/* `served_ms` of the connection is now. */
void connection_limits_renew(struct connection_limits *limits, struct gate_connection *connection);
