/* SPDX-License-Identifier: Apache-2.0 */
#include "http/relay.h"

#include "base/id.h"
#include "http/gate_answer.h"
#include "http/http.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Rounds per run: one busy connection must not keep the others waiting. */
#define ROUNDS_MAX 4

void relay_refuse(struct gate_connection *c, int status, const char *sentence) {
    if (c->refusal.bytes > 0 || c->reading == RELAY_DISCARD) return;
    char id[HTTP_REQUEST_ID_BYTES];
    id_hex(id, sizeof id, "req_", 32);
    gate_answer_write(&c->refusal, status, sentence, id);
    gate_tell_refused(c->gate, &c->peer, status, sentence, id);
    c->reading = RELAY_DISCARD;
    c->up_end = c->up_ready;
}

/* --- up: from the client to the library --- */

static bool may_read(const struct gate_connection *c) {
    if (c->client_eof || c->reading == RELAY_DISCARD) return false;
    return c->up_end < RELAY_UP_BYTES || c->up_start > 0;
}

static ssize_t receive(int fd, void *bytes, size_t count) {
    ssize_t got;
    do got = recv(fd, bytes, count, 0);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Sends with MSG_NOSIGNAL: a peer that has gone gives an error, not a signal. */
static ssize_t transmit(int fd, const void *bytes, size_t count) {
    ssize_t sent;
    do sent = send(fd, bytes, count, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent;
}

static bool would_block(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

/* As receive, from the client. */
static ssize_t receive_client(struct gate_connection *c, void *bytes, size_t count) {
    return c->tls ? tls_receive(c->tls, bytes, count) : receive(c->client, bytes, count);
}

static ssize_t transmit_client(struct gate_connection *c, const void *bytes, size_t count) {
    return c->tls ? tls_send(c->tls, bytes, count) : transmit(c->client, bytes, count);
}

/* Answers a client that speaks plain HTTP where HTTPS is spoken, in its own words. */
static void refuse_plain_http(struct gate_connection *c) {
    tls_session_free(c->tls);
    c->tls = NULL;
    relay_refuse(c, 400, "This port speaks HTTPS only: use https:// in place of http://");
}

static void make_room(struct gate_connection *c) {
    if (c->up_start == 0 || (c->up_end < RELAY_UP_BYTES && c->up_start < c->up_end)) return;
    memmove(c->up, c->up + c->up_start, c->up_end - c->up_start);
    c->up_ready -= c->up_start;
    c->up_end -= c->up_start;
    c->up_start = 0;
}

static void end_reading(struct gate_connection *c, ssize_t got) {
    if (got < 0) c->dead = true;
    c->client_eof = c->client_hung_up = true;
}

void relay_drop(struct gate_connection *c, size_t bytes) {
    char scratch[16384];
    ssize_t got = 0;
    if (c->client_eof || c->reading != RELAY_DISCARD) return;
    c->has_drops = false;
    if (c->tls)
        got = tls_receive(c->tls, scratch, bytes < sizeof scratch ? bytes : sizeof scratch);
    else /* the kernel drops them without a copy */
        do got = recv(c->client, NULL, bytes, MSG_TRUNC);
        while (got < 0 && errno == EINTR);
    if (got < 0 && would_block()) return;
    c->has_drops = got > 0;
    if (got <= 0) end_reading(c, got);
}

static bool read_client(struct gate_connection *c, int64_t now_ms) {
    if (!may_read(c)) return false;
    make_room(c);
    ssize_t got = receive_client(c, c->up + c->up_end, RELAY_UP_BYTES - c->up_end);
    if (got > 0) {
        c->up_end += (size_t)got;
        c->active_ms = now_ms;
        return true;
    }
    if (got < 0 && would_block()) return false;
    if (got < 0 && c->tls && tls_is_plain_http(c->tls))
        refuse_plain_http(c);
    else
        end_reading(c, got);
    return true;
}

static bool check_head(struct gate_connection *c, int64_t now_ms) {
    struct head head;
    size_t unread = c->up_end - c->up_ready;
    if (unread == 0) return false;
    if (c->head_ms == 0) c->head_ms = now_ms;
    enum head_state state =
        head_read(&head, (struct str){c->up + c->up_ready, unread}, c->head_checked);
    c->head_checked = unread;
    if (state == HEAD_INCOMPLETE) return false;
    c->head_checked = 0;
    c->head_ms = 0;
    c->served_ms = now_ms;
    if (state == HEAD_REFUSED) {
        relay_refuse(c, head.refusal_status, head.refusal);
        return true;
    }
    atomic_fetch_add(&c->unanswered, 1);
    head_move_blanks(c->up + c->up_ready, head.bytes);
    c->up_ready += head.bytes;
    c->body_left = head.body_bytes;
    memset(&c->chunks, 0, sizeof c->chunks);
    c->pace_ms = now_ms;
    c->pace_bytes = 0;
    if (head.body == HEAD_BODY_LENGTH) c->reading = RELAY_LENGTH;
    if (head.body == HEAD_BODY_CHUNKED) c->reading = RELAY_CHUNKED;
    c->in_body = head.body != HEAD_BODY_NONE;
    return true;
}

static bool check_body(struct gate_connection *c) {
    size_t unread = c->up_end - c->up_ready, used = 0;
    if (unread == 0) return false;
    if (c->reading == RELAY_LENGTH) {
        used = unread < c->body_left ? unread : (size_t)c->body_left;
        c->body_left -= used;
        if (c->body_left == 0) c->reading = RELAY_HEAD;
    } else {
        enum head_state state = chunk_scan_feed(&c->chunks, c->up + c->up_ready, unread, &used);
        if (state == HEAD_REFUSED) {
            relay_refuse(c, 400, "The chunked body is malformed");
            return true;
        }
        if (state == HEAD_COMPLETE) c->reading = RELAY_HEAD;
    }
    if (c->reading == RELAY_HEAD) c->in_body = false;
    c->up_ready += used;
    c->pace_bytes += used;
    return used > 0;
}

/* Checks the framing of all bytes, over several pipelined requests. */
static void check(struct gate_connection *c, int64_t now_ms) {
    bool moved = true;
    while (moved && c->reading != RELAY_DISCARD)
        moved = c->reading == RELAY_HEAD ? check_head(c, now_ms) : check_body(c);
}

/* True if the library may learn that no more bytes come. It takes the end of input for the end of
 * the connection, even while a handler works on an answer. So every request must have its answer
 * first, except a last one whose body will never be complete. */
static bool may_shut_inner(struct gate_connection *c) {
    if (!c->client_eof && c->reading != RELAY_DISCARD) return false;
    unsigned doomed = c->in_body ? 1 : 0;
    if (atomic_load(&c->unanswered) <= doomed) return true;
    /* gate_request_done reads this after it has counted; so count again after setting it. */
    atomic_store(&c->awaits_done, true);
    return atomic_load(&c->unanswered) <= doomed;
}

/* True if the library has read all bytes that went up. Its epoll is edge-triggered, and a short
 * read makes it wait for the next edge: an end of input that came with the bytes would never be
 * seen. */
static bool is_read_by_library(const struct gate_connection *c) {
    int waiting = 0;
    /* The kernel still counts one byte while it tells that the last ones were read. */
    return ioctl(c->inner, SIOCOUTQ, &waiting) != 0 || waiting <= 1;
}

/* The library is done with the connection, or never knew of it. */
static void end_inner(struct gate_connection *c) {
    c->inner_eof = c->inner_shut = true;
    c->reading = RELAY_DISCARD;
    c->up_start = c->up_ready = c->up_end = 0;
}

bool relay_wants_library(const struct gate_connection *c) {
    return c->inner < 0 && !c->dead && !c->inner_shut && c->up_start < c->up_ready;
}

void relay_end_without_library(struct gate_connection *c, int status, const char *sentence) {
    relay_refuse(c, status, sentence);
    end_inner(c);
}

static bool write_inner(struct gate_connection *c) {
    if (c->inner_shut) {
        c->up_start = c->up_ready;
        return false;
    }
    if (c->inner < 0) {
        if (c->up_start < c->up_ready || !may_shut_inner(c)) return false;
        end_inner(c);
        return true;
    }
    if (c->up_start < c->up_ready) {
        ssize_t sent = transmit(c->inner, c->up + c->up_start, c->up_ready - c->up_start);
        if (sent < 0 && would_block()) return false;
        if (sent < 0) {
            /* The library has closed its end; its earlier bytes can still be read. Or memory is
             * short: then the connection ends, which the library notices by its hang-up. */
            if (errno != EPIPE && errno != ECONNRESET) c->dead = true;
            shutdown(c->inner, SHUT_WR);
            c->inner_shut = true;
            return true;
        }
        c->up_start += (size_t)sent;
        return true;
    }
    if (!may_shut_inner(c)) return false;
    c->awaits_read = !is_read_by_library(c);
    if (c->awaits_read) return false;
    shutdown(c->inner, SHUT_WR);
    c->inner_shut = true;
    return true;
}

/* --- down: from the library to the client --- */

/* Queues the last answer after the library has closed: gate_refuse's, or the gate's own refusal. */
static void queue_last_word(struct gate_connection *c) {
    c->refusal_queued = true;
    pthread_mutex_lock(&c->lock);
    const char *bytes = c->note ? c->note : c->refusal.at;
    size_t count = c->note ? c->note_bytes : c->refusal.bytes;
    if (count > RELAY_DOWN_BYTES) count = 0;
    if (count > 0) memcpy(c->down, bytes, count);
    pthread_mutex_unlock(&c->lock);
    c->down_start = 0;
    c->down_end = count;
}

static bool read_inner(struct gate_connection *c, int64_t now_ms) {
    if (c->inner_eof) {
        if (c->down_end > 0 || c->refusal_queued) return false;
        queue_last_word(c);
        return true;
    }
    if (c->inner < 0 || c->down_end == RELAY_DOWN_BYTES) return false;
    ssize_t got = receive(c->inner, c->down + c->down_end, RELAY_DOWN_BYTES - c->down_end);
    if (got < 0 && would_block()) return false;
    if (got <= 0) {
        end_inner(c);
        return true;
    }
    c->down_end += (size_t)got;
    c->active_ms = now_ms;
    return true;
}

static bool write_client(struct gate_connection *c, int64_t now_ms) {
    if (c->down_start == c->down_end) {
        c->stalled_ms = 0;
        if (!c->refusal_queued || c->lingering) return false;
        if (c->tls) tls_end(c->tls);
        shutdown(c->client, SHUT_WR);
        c->lingering = true;
        c->linger_ms = now_ms;
        return true;
    }
    ssize_t sent = transmit_client(c, c->down + c->down_start, c->down_end - c->down_start);
    if (sent < 0 && would_block()) {
        if (c->stalled_ms == 0) c->stalled_ms = now_ms;
        return false;
    }
    if (sent < 0) {
        c->dead = true;
        return false;
    }
    c->down_start += (size_t)sent;
    if (c->down_start == c->down_end) c->down_start = c->down_end = 0;
    c->stalled_ms = 0;
    c->active_ms = c->served_ms = now_ms;
    return true;
}

void relay_run(struct gate_connection *c, int64_t now_ms) {
    c->unfinished = true;
    for (int round = 0; round < ROUNDS_MAX && !c->dead; round++) {
        bool moved = read_client(c, now_ms);
        check(c, now_ms);
        moved |= write_inner(c);
        moved |= read_inner(c, now_ms);
        moved |= write_client(c, now_ms);
        if (c->lingering && c->client_eof) c->dead = true;
        if (!moved) {
            c->unfinished = false;
            break;
        }
    }
}

uint32_t relay_client_interest(const struct gate_connection *c) {
    bool drops = c->reading == RELAY_DISCARD && !c->client_eof && !c->has_drops;
    bool reads = may_read(c) || drops, writes = c->down_start < c->down_end;
    /* TLS may have to send before it can receive, and the reverse. An event that cannot be used
     * would come again and again. */
    bool sends_first = reads && c->tls && tls_receive_waits_to_send(c->tls);
    bool receives_first = writes && c->tls && tls_send_waits_to_receive(c->tls);
    uint32_t events = 0;
    if (reads && !sends_first) events |= EPOLLIN;
    if (!c->client_hung_up) events |= EPOLLRDHUP;
    if ((writes && !receives_first) || sends_first) events |= EPOLLOUT;
    return events;
}

uint32_t relay_inner_interest(const struct gate_connection *c) {
    uint32_t events = 0;
    if (c->inner < 0) return 0;
    if (!c->inner_eof && c->down_end < RELAY_DOWN_BYTES) events |= EPOLLIN;
    if (!c->inner_shut && c->up_start < c->up_ready) events |= EPOLLOUT;
    /* An edge is that the library has read; the level would be there all the time. */
    if (!c->inner_shut && c->awaits_read) events |= EPOLLOUT | EPOLLET;
    return events;
}
