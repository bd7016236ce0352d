/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* lingering_close: clients for which there is no place. They get one short answer without a
 * connection being made.
 *
 * A socket that is closed while bytes of its client arrive resets the connection, and the client
 * may never see the answer. So the sockets stay open for a moment, and what arrives is dropped.
 *
 * Thread: the gate's.
 * Memory: at most LINGERING_MAX sockets; the one turned away first leaves for a new one. */

#include <stddef.h>
#include <stdint.h>

#define LINGERING_MAX 64
#define LINGERING_SENTENCE "Too many connections are open"

struct lingering_close {
    struct {
        int client;
        int64_t until_ms;
    } at[LINGERING_MAX]; /* in the order in which they came */
    size_t count;
};

/* Takes the socket over and sends the answer with this id; NULL: none, as a client that expects TLS
 * could not read it. */
void lingering_close_add(struct lingering_close *lingering, int client, const char *request_id,
                         int64_t now_ms);
/* Drops what has arrived, and closes the sockets whose time is over or whose client has gone. */
void lingering_close_tick(struct lingering_close *lingering, int64_t now_ms);
void lingering_close_close(struct lingering_close *lingering);
