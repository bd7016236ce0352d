/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gate: the sockets of clients. It relays each connection byte for byte to a socket pair, whose
 * other end the HTTP library has, but only bytes whose framing head.h has accepted, and only at a
 * pace that does not hold up the server. The pair is made once a first header block is whole: the
 * library never knows of silent connections, nor of slow ones.
 *
 * The gate itself answers requests that the library must not see or could not answer: bad framing,
 * header blocks that are too big or too slow, bodies that trickle, too many connections, and bodies
 * that a handler gave up half-way (gate_refuse). It drops the bytes that such a client still sends:
 * a socket that is closed before them would reset the connection and hide the answer. It also
 * notices that a client has gone while its request waits. With a certificate it speaks TLS (tls.h),
 * and the clock of the first header block includes the handshake.
 *
 * Turns: connections whose address had few when they came are handled first, then a bounded number
 * of the others. So a client does not wait behind the hundreds of busy connections of another
 * address. The library has a thread for each of the two kinds, for the same reason.
 *
 * Thread: its own ("http-gate"); functions as they say.
 * Memory: per connection a buffer of 64 KiB for bytes of the client, and of 8 KiB for answers; in
 *     the kernel at most about 256 KiB for a client that does not read.
 * Invariant: bytes go to the library only if the gate knows where their request ends. */

#include "base/address.h"
#include "base/err.h"

struct gate;
struct tls;
struct gate_connection;
struct http_refused;

struct gate_options {
    const char *host;
    uint16_t port;
    struct tls *tls; /* NULL: plain HTTP */
    uint32_t connections_max;
    uint32_t connections_per_peer_max; /* 0: 256, and 7/8 of all for loopback */
    int64_t head_ms;
    int64_t idle_ms;
    int64_t stall_ms;
    uint64_t body_bytes_per_s_min;
    void *context;
    /* The first header block of a connection is whole; `fd` is the library's end, now the callee's.
     * The callee also gets one hold of the connection, which gate_drop gives back. False if it
     * cannot take the connection. `is_crowded`: the address had more than CONNECTIONS_CROWD
     * (connection_limits.h) connections when this one came. */
    bool (*add)(void *context, struct gate_connection *connection, int fd, bool is_crowded);
    /* Called several times a second while there are connections, and while it answers true. On the
     * gate's thread, without locks. */
    bool (*tick)(void *context);
    /* No byte has moved for quiet_ms while the client waits for the rest of an answer. On the
     * gate's thread, without locks; repeated until a byte moves. */
    int64_t quiet_ms;
    void (*quiet)(void *context, struct gate_connection *connection);
    /* The client has gone; once per connection. On the gate's thread, without locks. */
    void (*gone)(void *context, struct gate_connection *connection);
    /* The gate has written an answer of its own. On the gate's thread, without locks. */
    void (*refused)(void *context, const struct http_refused *refused);
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
/* Frees a stopped gate, of which no connection may be held any more. NULL is allowed. */
void gate_close(struct gate *gate);
void gate_status(struct gate *gate, struct gate_status *ret_status); /* any thread */

/* Leaves an answer (a whole HTTP message; copied) for a client whose request the library will not
 * answer: the gate sends it when the library closes its end. The first call counts. Any thread that
 * holds the connection. */
void gate_refuse(struct gate_connection *connection, struct str answer);
/* One more request has been answered in full. Any thread. */
void gate_request_done(struct gate_connection *connection);
const struct address *gate_peer(const struct gate_connection *connection);
/* True if a client of another machine sends its requests without TLS. */
bool gate_is_overheard(const struct gate_connection *connection);
void gate_hold(struct gate_connection *connection);
void gate_drop(struct gate_connection *connection);
/* A pointer that the callee keeps with the connection, under the callee's lock. */
void gate_set_user(struct gate_connection *connection, void *user);
void *gate_user(const struct gate_connection *connection);
bool gate_is_gone(struct gate_connection *connection); /* any thread */

/* Tells of an answer of the gate. On the gate's thread. */
void gate_tell_refused(struct gate *gate, const struct address *peer, int status,
                       const char *sentence, const char *request_id);
