/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* places: whether a new connection has a place, and which idle one leaves for it.
 *
 * Each address has a bound, so that one machine cannot take all places. At its own bound an address
 * loses its own longest idle connection, so that a flood of idle connections displaces itself. A
 * client that has taken nothing of its answer for 10 s counts as idle.
 *
 * Thread: the gate's.
 * Memory: none; the connections are the gate's. */

#include "base/address.h"
#include "http/gate.h"
#include "http/relay.h"

/* True if a connection of `peer` may be made at `at_ms`, once *ret_leaves (NULL: none) is closed.
 * `connections` is the list of all. */
bool places_find(const struct gate_options *options, struct gate_connection *connections,
                 const struct address *peer, int64_t at_ms, struct gate_connection **ret_leaves);
