/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* relay: one connection of the gate. It passes bytes up from the client to the library as far as
 * their framing is accepted, and all bytes down. For gate.c only.
 *
 * Thread: the gate's, except for the members that `lock` guards and the atomic ones.
 * Memory: one block per connection; gate.c frees it after the last hold is given back.
 * Invariant: up_start <= up_ready <= up_end; only [up_start, up_ready) may be sent to the
 * library. */

#include "base/address.h"
#include "base/buf.h"
#include "http/gate.h"
#include "http/head.h"
#include "http/tls.h"

#include <pthread.h>
#include <stdatomic.h>

#define RELAY_UP_BYTES 65536
#define RELAY_DOWN_BYTES 8192 /* small, because a slow reader keeps it full */
#define RELAY_LINGER_MS 2000  /* after the last answer; a body that still comes has stall_ms */

enum relay_reading {
    RELAY_HEAD,
    RELAY_LENGTH,
    RELAY_CHUNKED,
    RELAY_DISCARD, /* further bytes are dropped: the connection is about to end */
};

struct gate_connection {
    struct gate *gate;
    struct gate_connection *next, *previous; /* in the order of `served_ms` (connection_limits.h) */
    struct connection_peer *place;           /* the account of its address */
    struct address peer;
    bool is_crowded; /* its address had many connections when it came */
    int client;
    struct tls_session *tls; /* between `client` and the relay; NULL: plain HTTP */
    int inner;               /* the gate's end of the socket pair; -1 before the first request */
    uint32_t client_interest, inner_interest;

    enum relay_reading reading;
    size_t head_checked; /* bytes from up_ready on that head_read has searched */
    bool in_body;        /* inside the latest request's body; stays true if it is given up */
    uint64_t body_left;
    struct chunk_scan chunks;

    bool client_eof;
    bool client_hung_up; /* the client has closed its side; unread bytes may be left */
    bool inner_eof;
    bool inner_shut;     /* the gate has shut its end: no more bytes go up */
    bool awaits_read;    /* the gate shuts its end once the library has read all bytes */
    bool refusal_queued; /* the refusal is in `down`, behind all other bytes */
    bool lingering;
    bool has_drops;  /* bytes that are to be dropped wait for their turn */
    bool unfinished; /* the latest run ended at its bound, with bytes left to move */
    bool is_listed;  /* it is in a list of ready_list.h */
    struct gate_connection *next_ready, *previous_ready;
    bool dead;
    bool told_gone;
    struct buf refusal; /* the gate's own last answer */

    int64_t accepted_ms;
    int64_t active_ms; /* time of the latest byte in either direction */
    int64_t
        served_ms;   /* time of the accept, the latest whole header block or the latest byte sent */
    int64_t head_ms; /* time of the accept, or of the first byte of a later header block; 0
                          between blocks */
    int64_t pace_ms; /* start of the window in which body bytes are counted */
    uint64_t pace_bytes;
    int64_t stalled_ms; /* time since which the client takes no bytes; 0: it takes them */
    int64_t linger_ms;  /* time since which the connection lingers */

    pthread_mutex_t lock; /* guards note, gone */
    char *note;           /* the answer that gate_refuse left; owned */
    size_t note_bytes;
    bool gone;
    _Atomic(void *) user;
    atomic_uint holds;
    atomic_uint unanswered;  /* requests passed on and not yet answered in full */
    atomic_bool awaits_done; /* the gate wants to be woken when `unanswered` falls */

    size_t up_start, up_ready, up_end;
    size_t down_start, down_end;
    char up[RELAY_UP_BYTES];
    char down[RELAY_DOWN_BYTES];
};

/* The gate waits for a request, and owes none an answer. A slow header block is idle, too. */
static inline bool relay_is_idle(struct gate_connection *c) {
    return c->reading == RELAY_HEAD && c->down_start == c->down_end && !c->lingering &&
           atomic_load(&c->unanswered) == 0;
}

/* Moves bytes up to a bound. Afterwards `dead` says that the connection can be closed, and
 * `unfinished` that it must be run again without waiting for an event. */
void relay_run(struct gate_connection *connection, int64_t now_ms);
/* Drops bytes of a client that has its last answer, or will have. `has_drops` says afterwards that
 * more of them may be there; otherwise an event will tell of more. */
void relay_drop(struct gate_connection *connection, size_t bytes);
/* True if a request is to be passed on and the library does not know of the connection yet. */
bool relay_wants_library(const struct gate_connection *connection);
/* Ends a connection that the library cannot take, with an answer of the gate. */
void relay_end_without_library(struct gate_connection *connection, int status,
                               const char *sentence);
/* Ends the connection with an answer of the gate, after the answers to earlier requests. */
void relay_refuse(struct gate_connection *connection, int status, const char *sentence);
/* The epoll events to wait for. */
uint32_t relay_client_interest(const struct gate_connection *connection);
uint32_t relay_inner_interest(const struct gate_connection *connection);
