/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ready_list: the gate's connections that have more bytes to move at once, in the order of their
 * turns.
 *
 * A run of one connection is bounded, so that a busy one does not keep the others waiting. No event
 * may tell of the bytes that it leaves, so that the gate itself comes back to it.
 *
 * Thread: the gate's.
 * Memory: none; the links are in the connections.
 * Invariant: a connection is in the list exactly while its `is_listed` is true. */

#include "http/relay.h"

struct ready_list {
    struct gate_connection *first, *last;
    uint32_t count;
};

/* Adds a connection that is in no list, as the last. */
void ready_list_add(struct ready_list *list, struct gate_connection *connection);
/* Takes a connection out, if it is in the list. */
void ready_list_remove(struct ready_list *list, struct gate_connection *connection);
