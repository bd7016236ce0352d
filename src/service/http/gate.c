/* SPDX-License-Identifier: Apache-2.0 */
#include "http/gate.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/os.h"
#include "http/connection_limits.h"
#include "http/http.h"
#include "http/lingering_close.h"
#include "http/listener.h"
#include "http/ready_list.h"
#include "http/time_limits.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TICK_MS 250
#define EVENTS_MAX 64
#define CROWD_MAX 16   /* steps for crowds between two looks at the others */
#define ACCEPTS_MAX 16 /* accepts in a row, before open connections get their turn */
/* Refused clients that go on sending share this pace, 400 MiB/s: taking their bytes as fast as they
 * come would keep the gate from the others. One step per client is at least 16 KiB. */
#define DROP_MS 5
#define DROP_BYTES ((size_t)2 << 20)
#define DROP_BYTES_LEAST ((size_t)16 << 10)
/* What the kernel keeps of each direction of a socket pair (it doubles it for its own needs). */
#define INNER_BUFFER_BYTES (64 << 10)

struct gate {
    struct gate_options options;
    int listener; /* -1 once it is closed */
    int epoll;
    int crowds; /* the epoll set of crowded connections; it is in `epoll` */
    int wake;
    bool accepting;                  /* the listener is in the epoll set */
    bool arrived;                    /* the listener has connections to accept */
    bool crowded;                    /* `crowds` has events */
    bool woken;                      /* a connection can go on without an event of its own */
    struct connection_limits limits; /* all connections */
    struct ready_list ready[2];      /* those to run again before a wait; [1]: crowded ones */
    struct lingering_close lingering;
    uint32_t dropping; /* connections with bytes to drop, at the latest look and since */
    int64_t dropped_ms;
    pthread_t thread;
    bool started;
    atomic_bool stop_listening;
    atomic_bool stop;
    atomic_uint connection_count;
    atomic_uint_fast64_t connections_total;
    atomic_uint_fast64_t refused_total;
};

static int64_t now_ms(void) {
    return clock_monotonic_ns() / 1000000;
}

/* --- what the library's side calls --- */

void gate_hold(struct gate_connection *c) {
    atomic_fetch_add(&c->holds, 1);
}

void gate_drop(struct gate_connection *c) {
    if (atomic_fetch_sub(&c->holds, 1) != 1) return;
    pthread_mutex_destroy(&c->lock);
    buf_release(&c->refusal);
    free(c->note);
    free(c);
}

void gate_refuse(struct gate_connection *c, struct str answer) {
    pthread_mutex_lock(&c->lock);
    if (!c->note) {
        c->note = mem_alloc(answer.bytes);
        memcpy(c->note, answer.at, answer.bytes);
        c->note_bytes = answer.bytes;
    }
    pthread_mutex_unlock(&c->lock);
}

static void wake(struct gate *gate) {
    uint64_t one = 1;
    ssize_t written = write(gate->wake, &one, sizeof one);
    (void)written; /* fails only if a wake-up is pending */
}

void gate_request_done(struct gate_connection *c) {
    atomic_fetch_sub(&c->unanswered, 1);
    if (atomic_load(&c->awaits_done)) wake(c->gate);
}

void gate_set_user(struct gate_connection *c, void *user) {
    atomic_store(&c->user, user);
}

void *gate_user(const struct gate_connection *c) {
    return atomic_load(&c->user);
}

const struct address *gate_peer(const struct gate_connection *c) {
    return &c->peer;
}

bool gate_is_overheard(const struct gate_connection *c) {
    return !c->gate->options.tls && !address_is_loopback(&c->peer);
}

bool gate_is_gone(struct gate_connection *c) {
    pthread_mutex_lock(&c->lock);
    bool gone = c->gone;
    pthread_mutex_unlock(&c->lock);
    return gone;
}

void gate_tell_refused(struct gate *gate, const struct address *peer, int status,
                       const char *sentence, const char *request_id) {
    if (!gate->options.refused) return;
    gate->options.refused(gate->options.context, &(struct http_refused){.request_id = request_id,
                                                                        .peer = peer,
                                                                        .status = status,
                                                                        .sentence = sentence});
}

/* --- connections --- */

/* Registers, changes or removes a descriptor's interest. No interest means removal, because epoll
 * reports a hang-up of every registered descriptor, again and again. */
static void set_interest(struct gate *gate, struct gate_connection *c, int fd, uint32_t *current,
                         uint32_t wanted) {
    if (*current == wanted) return;
    struct epoll_event event = {.events = wanted, .data.ptr = c};
    int op = *current == 0 ? EPOLL_CTL_ADD : wanted == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    int epoll = c->is_crowded ? gate->crowds : gate->epoll;
    if (epoll_ctl(epoll, op, fd, &event) != 0) c->dead = true;
    *current = wanted;
}

static void tell_gone(struct gate *gate, struct gate_connection *c) {
    if (c->told_gone) return;
    c->told_gone = true;
    pthread_mutex_lock(&c->lock);
    c->gone = true;
    pthread_mutex_unlock(&c->lock);
    gate->options.gone(gate->options.context, c);
}

static void connection_close(struct gate *gate, struct gate_connection *c) {
    if (c->refusal.bytes > 0) atomic_fetch_add(&gate->refused_total, 1);
    tell_gone(gate, c);
    ready_list_remove(&gate->ready[c->is_crowded], c);
    /* While a child that was just forked (an engine) has the descriptors too, closing them does not
     * end the interest: later events would name freed memory. */
    set_interest(gate, c, c->client, &c->client_interest, 0);
    set_interest(gate, c, c->inner, &c->inner_interest, 0);
    if (c->tls) tls_end(c->tls);
    tls_session_free(c->tls);
    close(c->client);
    os_close(c->inner);
    connection_limits_remove(&gate->limits, c);
    atomic_fetch_sub(&gate->connection_count, 1);
    gate_drop(c);
}

/* Makes the library's end of a connection. False if there are no descriptors for it. */
static bool add_to_library(struct gate *gate, struct gate_connection *c) {
    int pair[2], inner_bytes = INNER_BUFFER_BYTES;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) return false;
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &inner_bytes, sizeof inner_bytes);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &inner_bytes, sizeof inner_bytes);
    gate_hold(c); /* the server's */
    if (!gate->options.add(gate->options.context, c, pair[1], c->is_crowded)) {
        gate_drop(c);
        close(pair[0]);
        return false;
    }
    c->inner = pair[0];
    return true;
}

/* The first header block is whole. The library need not know of earlier connections: of a flood of
 * silent ones each would cost it a socket pair, its buffers and two switches of threads. */
static void connection_join(struct gate *gate, struct gate_connection *c, int64_t at_ms) {
    if (!add_to_library(gate, c)) relay_end_without_library(c, 503, LINGERING_SENTENCE);
    relay_run(c, at_ms);
}

/* Moves bytes and registers the events to wait for. The caller closes dead connections, once none
 * of its events can name them. */
static void connection_serve(struct gate *gate, struct gate_connection *c, int64_t at_ms) {
    int64_t served_ms = c->served_ms;
    ready_list_remove(&gate->ready[c->is_crowded], c);
    relay_run(c, at_ms);
    if (relay_wants_library(c)) connection_join(gate, c, at_ms);
    if (c->served_ms != served_ms) connection_limits_renew(&gate->limits, c);
    if (c->client_hung_up || c->dead) tell_gone(gate, c);
    if (c->unfinished) ready_list_add(&gate->ready[c->is_crowded], c);
    if (c->dead) return;
    set_interest(gate, c, c->client, &c->client_interest, relay_client_interest(c));
    set_interest(gate, c, c->inner, &c->inner_interest, relay_inner_interest(c));
}

static void turn_away(struct gate *gate, int client, const struct address *peer, int64_t at_ms) {
    char id[HTTP_REQUEST_ID_BYTES];
    id_hex(id, sizeof id, "req_", 32);
    lingering_close_add(&gate->lingering, client, gate->options.tls ? NULL : id, at_ms);
    gate_tell_refused(gate, peer, 503, LINGERING_SENTENCE, id);
    atomic_fetch_add(&gate->refused_total, 1);
}

static void connection_open(struct gate *gate, int client, const struct address *peer,
                            int64_t at_ms) {
    struct gate_connection *leaves;
    if (!connection_limits_find(&gate->limits, &gate->options, peer, at_ms, &leaves)) {
        turn_away(gate, client, peer, at_ms);
        return;
    }
    if (leaves) connection_close(gate, leaves);
    struct gate_connection *c = mem_alloc(sizeof *c);
    /* The two buffers at the end of the struct stay untouched until bytes come. */
    memset(c, 0, offsetof(struct gate_connection, up));
    c->gate = gate;
    c->peer = *peer;
    c->client = client;
    if (gate->options.tls) c->tls = tls_session_new(gate->options.tls, client);
    c->inner = -1;
    c->accepted_ms = c->active_ms = c->served_ms = c->head_ms = at_ms;
    buf_init(&c->refusal, 4096);
    pthread_mutex_init(&c->lock, NULL);
    atomic_store(&c->holds, 1);
    connection_limits_add(&gate->limits, c);
    c->is_crowded = connection_limits_is_crowded(c);
    atomic_fetch_add(&gate->connection_count, 1);
    atomic_fetch_add(&gate->connections_total, 1);
    connection_serve(gate, c, at_ms);
}

/* --- the loop --- */

static void set_accepting(struct gate *gate, bool accepting) {
    if (gate->accepting == accepting || gate->listener < 0) return;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = gate};
    epoll_ctl(gate->epoll, accepting ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, gate->listener, &event);
    gate->accepting = accepting;
}

/* Each connection has the time of its own accept: while others were served the clock went on, and
 * who has been idle is judged by it. */
static void accept_some(struct gate *gate) {
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct sockaddr_storage accepted = {0};
        struct address peer = {0};
        socklen_t bytes = sizeof accepted;
        int client = accept4(gate->listener, (struct sockaddr *)&accepted, &bytes,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (client < 0) {
            /* Out of descriptors or memory: try again at the next tick instead of spinning. */
            if (errno != EAGAIN && errno != EWOULDBLOCK) set_accepting(gate, false);
            return;
        }
        (void)address_from_socket(&peer, (const struct sockaddr *)&accepted, bytes);
        connection_open(gate, client, &peer, now_ms());
    }
}

/* Takes the steps that no event announces: refusals after a time limit, and ends of requests that a
 * connection waits for. Only between batches of events, because it frees connections. */
static void tick(struct gate *gate, int64_t at_ms) {
    for (struct gate_connection *c = gate->limits.first, *next; c; c = next) {
        next = c->next;
        time_limits_judge(&gate->options, c, at_ms);
        bool quiet = at_ms - c->active_ms >= gate->options.quiet_ms &&
                     c->down_start == c->down_end && atomic_load(&c->unanswered) > 0;
        if (quiet && !c->dead && !c->lingering) gate->options.quiet(gate->options.context, c);
        if (!c->dead && (c->refusal.bytes > 0 || atomic_load(&c->awaits_done)))
            connection_serve(gate, c, at_ms);
        if (c->dead) connection_close(gate, c);
    }
    lingering_close_tick(&gate->lingering, at_ms);
    (void)gate->options.tick(gate->options.context);
    if (!atomic_load(&gate->stop_listening)) set_accepting(gate, true);
}

/* Runs unfinished connections once more. Between batches of events, because it frees those that are
 * dead. */
static void serve_ready(struct gate *gate, struct ready_list *list, uint32_t most, int64_t at_ms) {
    uint32_t count = list->count < most ? list->count : most;
    for (struct gate_connection *c; count > 0 && (c = list->first); count--) {
        if (!c->dead) connection_serve(gate, c, at_ms);
        if (c->dead) connection_close(gate, c);
    }
}

/* Drops what refused clients still send, so that they see their answer; each gets its share. */
static void drop_some(struct gate *gate, int64_t at_ms) {
    if (gate->dropping == 0 || at_ms - gate->dropped_ms < DROP_MS) return;
    size_t share = DROP_BYTES / gate->dropping;
    struct gate_connection *next;
    gate->dropped_ms = at_ms;
    gate->dropping = 0;
    for (struct gate_connection *c = gate->limits.first; c; c = next) {
        next = c->next;
        if (!c->has_drops) continue;
        relay_drop(c, share > DROP_BYTES_LEAST ? share : DROP_BYTES_LEAST);
        connection_serve(gate, c, at_ms);
        gate->dropping += c->has_drops;
        if (c->dead) connection_close(gate, c);
    }
}

static void close_listener(struct gate *gate) {
    if (gate->listener < 0) return;
    set_accepting(gate, false);
    close(gate->listener);
    gate->listener = -1;
}

static void handle_event(struct gate *gate, const struct epoll_event *event, int64_t at_ms) {
    if (event->data.ptr == gate) {
        gate->arrived = true;
    } else if (event->data.ptr == &gate->crowds) {
        gate->crowded = true;
    } else if (event->data.ptr == &gate->wake) {
        uint64_t count;
        ssize_t got = read(gate->wake, &count, sizeof count);
        (void)got;
        if (atomic_load(&gate->stop_listening)) close_listener(gate);
        gate->woken = true;
    } else {
        struct gate_connection *c = event->data.ptr;
        if (c->dead) return;
        if (event->events & EPOLLRDHUP) c->client_hung_up = true;
        if (!c->has_drops) {
            relay_drop(c, DROP_BYTES_LEAST);
            gate->dropping += c->has_drops;
        }
        connection_serve(gate, c, at_ms);
    }
}

static bool is_of_gate(const struct gate *gate, const void *data) {
    return data == gate || data == &gate->wake || data == &gate->crowds;
}

static void handle_events(struct gate *gate, struct epoll_event *events, int count, int64_t at_ms) {
    for (int i = 0; i < count; i++) handle_event(gate, &events[i], at_ms);
    /* Both ends of a connection may be in `events`: it is freed only after all of them. */
    for (int i = 0; i < count; i++) {
        struct gate_connection *c = events[i].data.ptr;
        if (is_of_gate(gate, c) || !c->dead) continue;
        for (int j = i + 1; j < count; j++)
            if (events[j].data.ptr == c) events[j].data.ptr = gate;
        connection_close(gate, c);
    }
}

static void *gate_main(void *context) {
    struct gate *gate = context;
    int64_t ticked_ms = now_ms();
    while (!atomic_load(&gate->stop)) {
        struct epoll_event events[EVENTS_MAX];
        bool idle = !gate->limits.first && gate->lingering.count == 0 && gate->accepting &&
                    !gate->options.tick(gate->options.context);
        int timeout = idle ? -1 : gate->dropping > 0 ? DROP_MS : TICK_MS;
        if (gate->woken || gate->ready[0].count + gate->ready[1].count > 0) timeout = 0;
        int count = epoll_wait(gate->epoll, events, EVENTS_MAX, clock_wait_ms(timeout));
        int64_t at_ms = now_ms();
        handle_events(gate, events, count, at_ms);
        if (gate->crowded) {
            gate->crowded = false;
            count = epoll_wait(gate->crowds, events, CROWD_MAX, 0);
            handle_events(gate, events, count, at_ms);
        }
        serve_ready(gate, &gate->ready[0], UINT32_MAX, at_ms);
        serve_ready(gate, &gate->ready[1], CROWD_MAX, at_ms);
        drop_some(gate, at_ms);
        /* Only now, because a new connection may close an idle one. */
        if (gate->arrived && gate->listener >= 0) accept_some(gate);
        gate->arrived = false;
        if (gate->woken || at_ms - ticked_ms >= TICK_MS) {
            gate->woken = false;
            tick(gate, at_ms);
            ticked_ms = at_ms;
        }
    }
    close_listener(gate);
    lingering_close_close(&gate->lingering);
    while (gate->limits.first) connection_close(gate, gate->limits.first);
    return NULL;
}

/* --- opening and closing --- */

static void gate_free(struct gate *gate) {
    os_close(gate->listener);
    os_close(gate->epoll);
    os_close(gate->crowds);
    os_close(gate->wake);
    free(gate);
}

enum err gate_open(struct gate **ret_gate, const struct gate_options *options, uint16_t *ret_port,
                   struct error *error) {
    struct gate *gate = mem_new(1, sizeof *gate);
    gate->options = *options;
    gate->listener = gate->epoll = gate->crowds = gate->wake = -1;
    enum err err = listener_open(&gate->listener, options->host, options->port, ret_port, error);
    if (err != OK) goto out;
    gate->epoll = epoll_create1(EPOLL_CLOEXEC);
    gate->crowds = epoll_create1(EPOLL_CLOEXEC);
    gate->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct epoll_event wake = {.events = EPOLLIN, .data.ptr = &gate->wake};
    struct epoll_event crowds = {.events = EPOLLIN, .data.ptr = &gate->crowds};
    if (gate->epoll < 0 || gate->crowds < 0 || gate->wake < 0 ||
        epoll_ctl(gate->epoll, EPOLL_CTL_ADD, gate->wake, &wake) != 0 ||
        epoll_ctl(gate->epoll, EPOLL_CTL_ADD, gate->crowds, &crowds) != 0) {
        err = err_from_errno(error, errno, "cannot watch sockets");
        goto out;
    }
    *ret_gate = gate;
    return OK;

out:
    gate_free(gate);
    return err;
}

enum err gate_start(struct gate *gate, struct error *error) {
    set_accepting(gate, true);
    int failed = pthread_create(&gate->thread, NULL, gate_main, gate);
    if (failed != 0) return err_from_errno(error, failed, "cannot start a thread for connections");
    gate->started = true;
    pthread_setname_np(gate->thread, "http-gate");
    return OK;
}

void gate_stop_listening(struct gate *gate) {
    atomic_store(&gate->stop_listening, true);
    wake(gate);
}

void gate_stop(struct gate *gate) {
    if (!gate->started) return;
    atomic_store(&gate->stop, true);
    wake(gate);
    pthread_join(gate->thread, NULL);
}

void gate_close(struct gate *gate) {
    if (gate) gate_free(gate);
}

void gate_status(struct gate *gate, struct gate_status *ret_status) {
    ret_status->connections = atomic_load(&gate->connection_count);
    ret_status->connections_total = atomic_load(&gate->connections_total);
    ret_status->refused_total = atomic_load(&gate->refused_total);
}
