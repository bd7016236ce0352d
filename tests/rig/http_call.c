/* SPDX-License-Identifier: Apache-2.0 */
#include "http_call.h"

#include "base/clock.h"
#include "sockets.h"
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_S 600 /* by then each request has its answer, or its connection has ended */
#define HEAD_BYTES 4096

/* What the client does of its own: sizes are drawn for each request. */
struct manner {
    size_t piece, taken; /* bytes at once, sent and received */
    size_t leaves_at;    /* bytes after which it leaves the connection, sent and received in all */
    int64_t rest_ms;     /* between two pieces */
    bool keeps;          /* the connection, for the next request */
};

static int kept;
static struct rng draws;

void http_call_begin(void) {
    kept = -1;
    draws = world_rng('h');
}

void http_call_end(void) {
    if (kept >= 0) close(kept);
    kept = -1;
}

static struct manner draw_manner(size_t request_bytes) {
    const uint32_t breaks = world->plan.http;
    struct manner manner = {.leaves_at = SIZE_MAX, .keeps = rng_below(&draws, 2) == 0};
    manner.piece = 1 + rng_below(&draws, request_bytes);
    if (rng_below(&draws, 3) == 0) manner.piece = request_bytes;
    if (request_bytes < 600 && rng_below(&draws, 4) == 0) manner.piece = 1 + rng_below(&draws, 9);
    manner.taken = 1 + rng_below(&draws, 8192);
    if (rng_below(&draws, 4) == 0) manner.rest_ms = (int64_t)rng_below(&draws, 4);
    if (breaks > 1 && rng_below(&draws, breaks) == 0)
        manner.leaves_at = rng_below(&draws, 2)
                               ? rng_below(&draws, request_bytes)
                               : request_bytes + rng_below(&draws, 2) * rng_below(&draws, 1000);
    return manner;
}

static void write_request(const struct http_call *call, struct buf *buf) {
    buf_printf(buf, "%s %s HTTP/1.1\r\nHost: localhost\r\n", call->method, call->target);
    if (call->key) buf_printf(buf, "Idempotency-Key: %s\r\n", call->key);
    if (call->type)
        buf_printf(buf, "Content-Type: %s\r\nContent-Length: %zu\r\n", call->type,
                   call->body.bytes);
    buf_add_text(buf, "\r\n");
    buf_add_str(buf, call->body);
}

static bool would_block(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

static void rest(const struct manner *manner) {
    if (manner->rest_ms > 0) clock_sleep_ms(manner->rest_ms);
}

/* Sends up to `bytes`, as long as the server takes them. */
static bool send_bytes(int fd, struct str bytes, const struct manner *manner, int64_t due_ns) {
    for (size_t at = 0; at < bytes.bytes;) {
        size_t piece = bytes.bytes - at < manner->piece ? bytes.bytes - at : manner->piece;
        ssize_t sent = send(fd, bytes.at + at, piece, MSG_NOSIGNAL);
        if (sent > 0) {
            at += (size_t)sent;
            rest(manner);
        } else if (!would_block()) {
            return false; /* an answer may be there */
        } else if (!sockets_wait_until(due_ns)) {
            world_fail("a request is not taken (liveness)");
        }
    }
    return true;
}

/* The bytes of the head, with its end; 0: it is not whole. */
static size_t head_bytes(const struct buf *answer) {
    const char *end = memmem(answer->at, answer->bytes, "\r\n\r\n", 4);
    return end ? (size_t)(end - answer->at) + 4 : 0;
}

/* The bytes that the answer has; SIZE_MAX: as many as come. */
static size_t whole_bytes(const struct buf *answer, size_t head) {
    static const char name[] = "content-length: ";
    char text[HEAD_BYTES];
    size_t count = head < sizeof text ? head : sizeof text - 1;
    memcpy(text, answer->at, count);
    text[count] = '\0';
    const char *at = strcasestr(text, name);
    return at ? head + strtoull(at + sizeof name - 1, NULL, 10) : SIZE_MAX;
}

/* Receives until the answer is whole, the server has closed, or the client has had enough. */
static bool receive(int fd, size_t most, const struct manner *manner, struct buf *answer,
                    int64_t due_ns) {
    static char bytes[8192];
    for (size_t whole = SIZE_MAX; answer->bytes < whole;) {
        if (answer->bytes >= most) return false;
        ssize_t got = recv(fd, bytes, manner->taken, 0);
        if (got > 0) {
            buf_add(answer, bytes, (size_t)got);
            size_t head = head_bytes(answer);
            if (head > 0) whole = whole_bytes(answer, head);
            rest(manner);
        } else if (got == 0 || !would_block()) {
            return false;
        } else if (!sockets_wait_until(due_ns)) {
            world_fail("a request has no answer (liveness)");
        }
    }
    return true;
}

static void take_answer(const struct buf *answer, struct http_told *told) {
    size_t head = head_bytes(answer);
    int status;
    if (sscanf(answer->at, "HTTP/1.1 %d", &status) != 1)
        world_fail("an answer is none: %.80s (HTTP)", answer->at);
    told->is_whole = true;
    told->status = status;
    buf_add(&told->body, answer->at + head, answer->bytes - head);
    buf_add_byte(&told->body, '\0');
    told->body.bytes--;
}

void http_call(const struct http_call *call, struct http_told *ret_told) {
    struct buf request, answer;
    int64_t due_ns = clock_monotonic_ns() + ANSWER_S * INT64_C(1000000000);
    buf_init(&request, BUF_UNLIMITED);
    buf_init(&answer, BUF_UNLIMITED);
    write_request(call, &request);
    const struct manner manner = draw_manner(request.bytes);
    *ret_told = (struct http_told){0};
    buf_init(&ret_told->body, BUF_UNLIMITED);
    world->requests++;
    int fd = kept >= 0 ? kept : sockets_connect();
    kept = -1;
    bool leaves_early = manner.leaves_at < request.bytes;
    struct str bytes = {request.at, leaves_early ? manner.leaves_at : request.bytes};
    size_t most = manner.leaves_at == SIZE_MAX ? SIZE_MAX : manner.leaves_at - bytes.bytes;
    bool is_sent = send_bytes(fd, bytes, &manner, due_ns);
    bool is_whole = !leaves_early && receive(fd, most, &manner, &answer, due_ns);
    if (is_whole) take_answer(&answer, ret_told);
    world->unanswered += !is_whole;
    if (is_whole && is_sent && manner.keeps)
        kept = fd;
    else
        close(fd);
    sockets_moved();
    buf_release(&request);
    buf_release(&answer);
}

void http_told_release(struct http_told *told) {
    buf_release(&told->body);
}
