/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gate: the sockets clients see. Each connection is relayed byte for byte to a socket pair behind
 * which the HTTP library sits, but only after head.h has accepted its framing, and only at a pace
 * that does not hold the server up.
 *
 * The gate answers by itself what the library must not see or could not answer: bad framing, header
 * blocks that are too big or too slow, bodies that trickle, too many connections, and bodies a
 * handler gave up on half-way (gate_refuse). It closes such a connection after reading on for a
 * moment, so that the client gets to see the answer. It also is what notices that a client went
 * away while its request waits.
 *
 * Thread: its own ("http-gate"); functions as they say.  Memory: two 64 KiB buffers a connection.
 * Invariant: bytes go to the library only when the gate knows where the request they belong to
 * ends. */

#include "base/buf.h"
#include "base/err.h"

struct gate;
struct gate_connection;

struct gate_options {
    const char *host;
    uint16_t port;
    uint32_t connections_max;
    uint32_t connections_per_peer_max;
    int64_t head_ms;
    int64_t idle_ms;
    int64_t stall_ms;
    uint64_t body_bytes_per_s_min;
    void *context;
    /* A connection has been accepted: `fd` is the library's end. False when it cannot be taken; the
     * callee has closed `fd` then. Holding: the callee owns one hold of the connection, given back
     * by gate_drop. */
    bool (*add)(void *context, struct gate_connection *connection, int fd);
    /* Nothing has moved for quiet_ms while the client waits for the rest of an answer. On the
     * gate's thread, without locks; again and again until something moves. */
    int64_t quiet_ms;
    void (*quiet)(void *context, struct gate_connection *connection);
    /* The client has gone away; once a connection. On the gate's thread, without locks. */
    void (*gone)(void *context, struct gate_connection *connection);
};

struct gate_status {
    uint32_t connections;
    uint64_t connections_total;
    uint64_t refused_total;
};

/* Listens; clients wait until gate_start. */
enum err gate_open(struct gate **ret_gate, const struct gate_options *options, uint16_t *ret_port,
                   struct error *error) MUST_CHECK;
/* Takes connections from now on. */
enum err gate_start(struct gate *gate, struct error *error) MUST_CHECK;
void gate_stop_listening(struct gate *gate); /* any thread */
/* Closes all connections. No `add` and no `gone` follows. */
void gate_stop(struct gate *gate);
/* Frees a stopped gate; nothing may hold a connection any more. NULL is allowed. */
void gate_close(struct gate *gate);
void gate_status(struct gate *gate, struct gate_status *ret_status); /* any thread */

/* Any thread, while holding the connection: when the library closes its end without having answered
 * the request it was reading, the client gets `answer` (a whole HTTP message; copied). The first
 * call counts. */
void gate_refuse(struct gate_connection *connection, struct str answer);
/* Any thread: one more request has been answered in full. */
void gate_request_done(struct gate_connection *connection);
void gate_hold(struct gate_connection *connection);
void gate_drop(struct gate_connection *connection);
/* The callee's own pointer for the connection, under the callee's lock. */
void gate_set_user(struct gate_connection *connection, void *user);
void *gate_user(const struct gate_connection *connection);
bool gate_is_gone(struct gate_connection *connection); /* any thread */

/* A whole error message in the API's JSON envelope, with a request id of its own and Connection:
 * close. */
void gate_write_refusal(struct buf *buf, int status, const char *sentence, const char *request_id);
