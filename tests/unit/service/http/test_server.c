/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/connection_limits.h"
#include "http/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define FILE_BYTES 3000000 /* many times what the relay moves in one go */
#define UPLOAD_BYTES_MAX 100000
#define BODY_MEMORY_BYTES_MAX 4000000 /* a million bytes of text */
#define PING_MS 50
#define WORKERS 4
#define LIBRARY_EVENTS 128 /* that libmicrohttpd takes from epoll at once */
#define FDS_MAX 1024
#define ROUNDS 5 /* one tick may end a wait by chance */

/* What the handlers saw, for the checks. */
struct seen {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int hanging, blocked, gone, released, uploads_released, dones, last_done_status;
    struct http_request *quiet; /* a stream that the test itself goes on with */
    struct http_request *held;  /* a stream that holds the library's thread; the test ends it */
    struct http_request *hung;  /* by a handler that waits for the client to go */
    uint64_t upload_bytes;
    bool may_go_on;     /* the handlers that hold a worker thread */
    bool holds_uploads; /* the bytes of an upload hold the library's thread, too */
};

struct fixture {
    struct http_server *server;
    struct seen seen;
    uint16_t port;
    unsigned char digests[1][SHA256_BYTES];
    struct key_set *keys;
};

static void count(struct seen *seen, int *counter) {
    pthread_mutex_lock(&seen->lock);
    ++*counter;
    pthread_cond_broadcast(&seen->changed);
    pthread_mutex_unlock(&seen->lock);
}

static int now(struct seen *seen, const int *counter) {
    pthread_mutex_lock(&seen->lock);
    int value = *counter;
    pthread_mutex_unlock(&seen->lock);
    return value;
}

static void wait_for(struct seen *seen, const int *counter, int value) {
    pthread_mutex_lock(&seen->lock);
    while (*counter < value) pthread_cond_wait(&seen->changed, &seen->lock);
    pthread_mutex_unlock(&seen->lock);
}

/* --- handlers --- */

static void answer_text(struct http_request *request, struct str text) {
    http_answer(request,
                &(struct http_answer){.status = 200, .content_type = "text/plain", .body = text});
}

static void handle_health(void *context, struct http_request *request) {
    (void)context;
    answer_text(request, STR("fine"));
}

static void handle_echo(void *context, struct http_request *request) {
    (void)context;
    answer_text(request, http_request_body(request));
}

static void handle_param(void *context, struct http_request *request) {
    (void)context;
    answer_text(request, http_request_param(request, 0));
}

static void *answer_later(void *context) {
    answer_text(context, STR("later"));
    return NULL;
}

static void *stream_later(void *context) {
    struct http_request *request = context;
    http_stream_begin(request);
    for (int i = 0; i < 100; i++) {
        char text[32];
        snprintf(text, sizeof text, "data: %d\n\n", i);
        http_stream_put(request, str_from(text));
    }
    http_stream_end(request);
    return NULL;
}

/* Writes until it is told that nobody reads. */
static void *stream_on(void *context) {
    struct http_request *request = context;
    char text[1000];
    memset(text, 'x', sizeof text);
    http_stream_begin(request);
    while (http_stream_put(request, (struct str){text, sizeof text})) {
    }
    http_stream_put(request, STR("after the end"));
    http_stream_end(request);
    return NULL;
}

static void in_thread(void *(*body)(void *), struct http_request *request) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, request), 0);
    pthread_detach(thread);
}

static void handle_later(void *context, struct http_request *request) {
    (void)context;
    in_thread(answer_later, request);
}

static void handle_stream(void *context, struct http_request *request) {
    (void)context;
    in_thread(stream_later, request);
}

static void context_released(void *context) {
    struct seen *seen = context;
    count(seen, &seen->released);
}

static void handle_stream_on(void *context, struct http_request *request) {
    struct fixture *fixture = context;
    http_request_on_gone(request, NULL, context_released, &fixture->seen);
    in_thread(stream_on, request);
}

static void handle_stream_quiet(void *context, struct http_request *request) {
    struct fixture *fixture = context;
    pthread_mutex_lock(&fixture->seen.lock);
    fixture->seen.quiet = request;
    pthread_mutex_unlock(&fixture->seen.lock);
    http_stream_begin(request);
    http_stream_put(request, STR("data: a\n\n"));
}

static void client_gone(void *context) {
    struct seen *seen = context;
    pthread_mutex_lock(&seen->lock);
    struct http_request *request = seen->hung;
    seen->gone++;
    pthread_cond_broadcast(&seen->changed);
    pthread_mutex_unlock(&seen->lock);
    answer_text(request, STR("nobody hears this"));
}

static void handle_hang(void *context, struct http_request *request) {
    struct fixture *fixture = context;
    pthread_mutex_lock(&fixture->seen.lock);
    fixture->seen.hung = request;
    fixture->seen.hanging++;
    pthread_cond_broadcast(&fixture->seen.changed);
    pthread_mutex_unlock(&fixture->seen.lock);
    http_request_on_gone(request, client_gone, context_released, &fixture->seen);
}

/* Holds its thread until the test lets it go. */
static void block(struct seen *seen) {
    count(seen, &seen->blocked);
    pthread_mutex_lock(&seen->lock);
    while (!seen->may_go_on) pthread_cond_wait(&seen->changed, &seen->lock);
    pthread_mutex_unlock(&seen->lock);
}

static void let_go(struct seen *seen) {
    pthread_mutex_lock(&seen->lock);
    seen->may_go_on = true;
    pthread_cond_broadcast(&seen->changed);
    pthread_mutex_unlock(&seen->lock);
}

/* Holds a worker thread. */
static void handle_block(void *context, struct http_request *request) {
    struct fixture *fixture = context;
    block(&fixture->seen);
    http_answer(request, &(struct http_answer){.status = 200, .body = STR("{}")});
}

static void hold_library(void *context) {
    block(context);
}

/* A stream without a byte, whose client waits. */
static void handle_stream_held(void *context, struct http_request *request) {
    struct fixture *fixture = context;
    fixture->seen.held = request;
    http_stream_on_empty(request, hold_library, &fixture->seen);
    http_stream_begin_as(request, "text/plain");
}

static void handle_file(void *context, struct http_request *request) {
    (void)context;
    int fd = memfd_create("file", MFD_CLOEXEC);
    assert_true(fd >= 0);
    char *bytes = malloc(FILE_BYTES);
    for (int i = 0; i < FILE_BYTES; i++) bytes[i] = (char)(i % 251);
    assert_int_equal(write(fd, bytes, FILE_BYTES), FILE_BYTES);
    free(bytes);
    http_answer_file(request, &(struct http_file){.fd = fd,
                                                  .bytes = FILE_BYTES,
                                                  .content_type = "application/octet-stream",
                                                  .etag = "\"tag\""});
}

static void *upload_begin(void *context, struct http_request *request) {
    (void)request;
    return context;
}

static void upload_part(void *upload, struct http_request *request,
                        const struct multipart_part *part) {
    (void)upload;
    if (strcmp(part->name, "bad") == 0)
        http_answer(request, &(struct http_answer){.status = 422, .body = STR("{\"no\":1}")});
}

static void upload_data(void *upload, struct http_request *request, struct str bytes) {
    struct fixture *fixture = upload;
    (void)request;
    pthread_mutex_lock(&fixture->seen.lock);
    bool holds = fixture->seen.holds_uploads;
    pthread_mutex_unlock(&fixture->seen.lock);
    if (holds) block(&fixture->seen);
    fixture->seen.upload_bytes += bytes.bytes;
}

static void upload_part_end(void *upload, struct http_request *request) {
    (void)upload, (void)request;
}

static void upload_release(void *upload) {
    struct fixture *fixture = upload;
    count(&fixture->seen, &fixture->seen.uploads_released);
}

static const struct http_upload upload = {.begin = upload_begin,
                                          .part = upload_part,
                                          .data = upload_data,
                                          .part_end = upload_part_end,
                                          .release = upload_release};

static void handle_upload(void *context, struct http_request *request) {
    char text[32];
    snprintf(text, sizeof text, "%llu",
             (unsigned long long)((struct fixture *)context)->seen.upload_bytes);
    answer_text(request, str_from(text));
}

static const struct http_route routes[] = {
    {"GET", "/health", KEY_SCOPE_OPEN, handle_health, NULL, "health", HTTP_PLAIN},
    {"POST", "/echo", KEY_SCOPE_OPEN, handle_echo, NULL, "echo", HTTP_LARGE_BODY},
    {"GET", "/echo/{id}", KEY_SCOPE_OPEN, handle_param, NULL, "param", HTTP_PLAIN},
    {"GET", "/later", KEY_SCOPE_OPEN, handle_later, NULL, "later", HTTP_PLAIN},
    {"GET", "/stream", KEY_SCOPE_OPEN, handle_stream, NULL, "stream", HTTP_PLAIN},
    {"GET", "/stream-on", KEY_SCOPE_OPEN, handle_stream_on, NULL, "streamOn", HTTP_PLAIN},
    {"GET", "/stream-quiet", KEY_SCOPE_OPEN, handle_stream_quiet, NULL, "streamQuiet", HTTP_PLAIN},
    {"GET", "/stream-held", KEY_SCOPE_OPEN, handle_stream_held, NULL, "streamHeld", HTTP_PLAIN},
    {"GET", "/hang", KEY_SCOPE_OPEN, handle_hang, NULL, "hang", HTTP_PLAIN},
    {"POST", "/block", KEY_SCOPE_OPEN, handle_block, NULL, "block", HTTP_LARGE_BODY},
    {"POST", "/plain", KEY_SCOPE_OPEN, handle_echo, NULL, "plain", HTTP_PLAIN},
    {"GET", "/probe", KEY_SCOPE_OPEN, handle_health, NULL, "probe", HTTP_QUICK},
    {"GET", "/file", KEY_SCOPE_OPEN, handle_file, NULL, "file", HTTP_PLAIN},
    {"POST", "/upload", KEY_SCOPE_OPEN, handle_upload, &upload, "upload", HTTP_PLAIN},
    {"GET", "/secret", KEY_SCOPE_ANY, handle_health, NULL, "secret", HTTP_PLAIN},
};

static void request_done(void *context, const struct http_done *done) {
    struct fixture *fixture = context;
    pthread_mutex_lock(&fixture->seen.lock);
    fixture->seen.last_done_status = done->status;
    pthread_mutex_unlock(&fixture->seen.lock);
    count(&fixture->seen, &fixture->seen.dones);
}

/* --- a client --- */

static int dial(const struct fixture *fixture) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(fixture->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void say(int fd, struct str text) {
    while (text.bytes > 0) {
        ssize_t sent = send(fd, text.at, text.bytes, MSG_NOSIGNAL);
        if (sent <= 0) return; /* refused half-way; the answer tells */
        text = str_skip(text, (size_t)sent);
    }
}

/* Reads to the end of the connection, which the text sent must have asked for. */
static struct str exchange(const struct fixture *fixture, struct str text, struct buf *answer) {
    int fd = dial(fixture);
    say(fd, text);
    buf_init(answer, 16 << 20);
    for (;;) {
        char *room = buf_reserve(answer, 65536);
        ssize_t got = recv(fd, room, 65536, 0);
        if (got <= 0) break;
        buf_commit(answer, (size_t)got);
    }
    close(fd);
    return buf_str(answer);
}

static bool has(struct str text, const char *part) {
    return str_find(text, str_from(part), 0) != SIZE_MAX;
}

static void check(const struct fixture *fixture, const char *text, const char *first_line,
                  const char *holds) {
    struct buf answer;
    struct str got = exchange(fixture, str_from(text), &answer);
    if (!str_starts_with(got, str_from(first_line)) || !has(got, holds) ||
        !has(got, "x-request-id: req_"))
        fail_msg("'%s' answered '%.*s'", text, STR_ARGS(got));
    buf_release(&answer);
}

#define JSON "Content-Type: application/json\r\n"
#define END "Host: localhost\r\nConnection: close\r\n\r\n"

/* --- the rules --- */

static void an_answer_comes_at_once_or_from_another_thread(void **state) {
    check(*state, "GET /health HTTP/1.1\r\n" END, "HTTP/1.1 200 ", "\r\n\r\nfine");
    check(*state, "GET /later HTTP/1.1\r\n" END, "HTTP/1.1 200 ", "\r\n\r\nlater");
    check(*state, "GET /health HTTP/1.0\r\n\r\n", "HTTP/1.", "\r\n\r\nfine");
}

static void bodies_come_whole_with_a_length_or_in_chunks(void **state) {
    check(*state, "POST /echo HTTP/1.1\r\n" JSON "Content-Length: 5\r\n" END "hello",
          "HTTP/1.1 200 ", "\r\n\r\nhello");
    check(*state,
          "POST /echo HTTP/1.1\r\n" JSON "Transfer-Encoding: chunked\r\n" END
          "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
          "HTTP/1.1 200 ", "\r\n\r\nhello");
    check(*state, "POST /echo HTTP/1.1\r\n" JSON "Content-Length: 0\r\n" END, "HTTP/1.1 200 ",
          "Content-Length: 0");
}

static void an_expected_100_continue_comes_before_the_answer(void **state) {
    check(*state,
          "POST /echo HTTP/1.1\r\n" JSON "Content-Length: 5\r\nExpect: 100-continue\r\n" END
          "hello",
          "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ", "hello");
}

static void pipelined_requests_are_answered_in_order(void **state) {
    struct buf answer;
    struct str got =
        exchange(*state,
                 STR("GET /echo/1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
                     "POST /echo HTTP/1.1\r\n" JSON "Host: localhost\r\nContent-Length: 1\r\n\r\n2"
                     "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n"
                     "GET /echo/3 HTTP/1.1\r\n" END),
                 &answer);
    size_t one = str_find(got, STR("\r\n\r\n1"), 0), two = str_find(got, STR("\r\n\r\n2"), 0);
    size_t later = str_find(got, STR("later"), 0), three = str_find(got, STR("\r\n\r\n3"), 0);
    assert_true(one < two && two < later && later < three && three != SIZE_MAX);
    buf_release(&answer);
}

static void a_framing_error_is_answered_after_the_requests_before_it(void **state) {
    struct buf answer;
    struct str got = exchange(*state,
                              STR("GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                  "GET /health HTTP/1.1\nHost: localhost\r\n\r\n"),
                              &answer);
    size_t later = str_find(got, STR("later"), 0), bad = str_find(got, STR("HTTP/1.1 400 "), 0);
    assert_true(later < bad && bad != SIZE_MAX);
    assert_true(has(got, "\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}"));
    buf_release(&answer);
}

static void unknown_routes_and_methods_get_the_envelope(void **state) {
    check(*state, "GET /nope HTTP/1.1\r\n" END, "HTTP/1.1 404 ", "{\"error\":{\"message\":");
    check(*state, "PUT /health HTTP/1.1\r\n" END, "HTTP/1.1 405 ", "Allow: GET");
    check(*state, "GET /echo/%00 HTTP/1.1\r\n" END, "HTTP/1.1 400 ", "a control character");
    check(*state, "POST /nope HTTP/1.1\r\nContent-Length: 3\r\n" END "abc", "HTTP/1.1 404 ",
          "{\"error\":");
    check(*state, "POST /nope HTTP/1.1\r\nContent-Length: 99999999\r\n" END "abc", "HTTP/1.1 404 ",
          "Connection: close");
}

static void a_route_behind_a_key_wants_the_key(void **state) {
    check(*state, "GET /secret HTTP/1.1\r\n" END, "HTTP/1.1 401 ", "\"code\":null");
    check(*state, "GET /secret HTTP/1.1\r\nAuthorization: Bearer no\r\n" END, "HTTP/1.1 401 ",
          "\"code\":\"invalid_api_key\"");
    check(*state, "GET /secret HTTP/1.1\r\nAuthorization: Bearer yes\r\n" END, "HTTP/1.1 200 ",
          "fine");
}

static void a_stream_written_by_another_thread_arrives_whole(void **state) {
    struct buf answer;
    struct str got = exchange(*state, STR("GET /stream HTTP/1.1\r\n" END), &answer);
    assert_true(has(got, "Content-Type: text/event-stream"));
    assert_true(has(got, "Cache-Control: no-cache"));
    assert_true(has(got, "data: 0\n\n") && has(got, "data: 99\n\n"));
    assert_true(str_ends_with(got, STR("\r\n0\r\n\r\n")));
    buf_release(&answer);
}

static size_t count_of(struct str text, const char *part) {
    size_t found = 0;
    for (size_t at = 0; (at = str_find(text, str_from(part), at)) != SIZE_MAX; at++) found++;
    return found;
}

static void a_stream_that_is_silent_gets_comment_lines(void **state) {
    struct fixture *fixture = *state;
    struct buf answer;
    buf_init(&answer, 1 << 20);
    int fd = dial(fixture);
    say(fd, STR("GET /stream-quiet HTTP/1.1\r\n" END));
    bool ended = false;
    for (;;) {
        char *room = buf_reserve(&answer, 4096);
        ssize_t got = recv(fd, room, 4096, 0);
        if (got <= 0) break;
        buf_commit(&answer, (size_t)got);
        if (ended || count_of(buf_str(&answer), ": ping\n\n") < 2) continue;
        ended = true;
        pthread_mutex_lock(&fixture->seen.lock);
        struct http_request *request = fixture->seen.quiet;
        pthread_mutex_unlock(&fixture->seen.lock);
        http_stream_put(request, STR("data: b\n\n"));
        http_stream_end(request);
    }
    close(fd);
    size_t first = str_find(buf_str(&answer), STR("data: a\n\n"), 0);
    size_t ping = str_find(buf_str(&answer), STR(": ping\n\n"), 0);
    size_t last = str_find(buf_str(&answer), STR("data: b\n\n"), 0);
    assert_true(first < ping && ping < last && last != SIZE_MAX);
    buf_release(&answer);
    /* A request that has no stream gets none, however long it takes. */
    check(*state, "GET /later HTTP/1.1\r\n" END, "HTTP/1.1 200 ", "\r\n\r\nlater");
}

static void a_clients_own_request_id_is_kept_when_it_is_harmless(void **state) {
    struct buf answer;
    struct str got =
        exchange(*state, STR("GET /health HTTP/1.1\r\nX-Request-Id: a.B_9-z\r\n" END), &answer);
    assert_true(has(got, "x-request-id: a.B_9-z\r\n"));
    buf_release(&answer);
    check(*state, "GET /health HTTP/1.1\r\nX-Request-Id: a b\r\n" END, "HTTP/1.1 200 ", "fine");
    check(*state,
          "GET /health HTTP/1.1\r\nX-Request-Id: "
          "01234567890123456789012345678901234567890123456789012345678901234\r\n" END,
          "HTTP/1.1 200 ", "fine");
}

static void options_tells_what_may_be_done_with_a_path(void **state) {
    check(*state, "OPTIONS /echo HTTP/1.1\r\n" END, "HTTP/1.1 204 ", "Allow: POST, OPTIONS\r\n");
    check(*state, "OPTIONS /secret HTTP/1.1\r\n" END, "HTTP/1.1 204 ",
          "Allow: GET, HEAD, OPTIONS\r\n");
    check(*state, "OPTIONS /nope HTTP/1.1\r\n" END, "HTTP/1.1 404 ", "Unknown request URL");
}

static void a_stream_ends_when_its_client_leaves_or_does_not_read(void **state) {
    struct fixture *fixture = *state;
    char some[100];
    int before = now(&fixture->seen, &fixture->seen.released);
    int leaving = dial(fixture);
    say(leaving, STR("GET /stream-on HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_int_equal(recv(leaving, some, sizeof some, MSG_WAITALL), sizeof some);
    close(leaving);
    wait_for(&fixture->seen, &fixture->seen.released, before + 1);
    int idle = dial(fixture);
    say(idle, STR("GET /stream-on HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    /* The writer stops at stream_bytes_max; the connection ends without the last chunk. */
    struct buf answer;
    buf_init(&answer, 256 << 20);
    char *room;
    ssize_t got;
    while ((room = buf_reserve(&answer, 65536)) && (got = recv(idle, room, 65536, 0)) > 0)
        buf_commit(&answer, (size_t)got);
    close(idle);
    assert_false(str_ends_with(buf_str(&answer), STR("0\r\n\r\n")));
    buf_release(&answer);
    wait_for(&fixture->seen, &fixture->seen.released, before + 2);
}

static void a_file_comes_whole_or_in_the_range_asked_for(void **state) {
    struct buf answer;
    struct str got = exchange(*state, STR("GET /file HTTP/1.1\r\n" END), &answer);
    size_t body = str_find(got, STR("\r\n\r\n"), 0) + 4;
    assert_int_equal(got.bytes - body, FILE_BYTES);
    size_t same = 0;
    while (same < FILE_BYTES && (unsigned char)got.at[body + same] == same % 251) same++;
    assert_int_equal(same, FILE_BYTES);
    buf_release(&answer);
    check(*state, "GET /file HTTP/1.1\r\nRange: bytes=97-99\r\n" END, "HTTP/1.1 206 ",
          "Content-Range: bytes 97-99/3000000");
    check(*state, "GET /file HTTP/1.1\r\nRange: bytes=97-99\r\n" END, "HTTP/1.1 206 ",
          "\r\n\r\nabc");
    check(*state, "GET /file HTTP/1.1\r\nRange: bytes=3000000-\r\n" END, "HTTP/1.1 416 ",
          "Content-Range: bytes */3000000");
    check(*state, "GET /file HTTP/1.1\r\nIf-None-Match: \"tag\"\r\n" END, "HTTP/1.1 304 ", "");
    check(*state, "HEAD /file HTTP/1.1\r\n" END, "HTTP/1.1 200 ", "Content-Length: 3000000");
}

static void a_client_that_goes_away_is_told_to_the_handler(void **state) {
    struct fixture *fixture = *state;
    int fd = dial(fixture);
    say(fd, STR("GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    wait_for(&fixture->seen, &fixture->seen.hanging, 1);
    close(fd);
    wait_for(&fixture->seen, &fixture->seen.gone, 1);
    wait_for(&fixture->seen, &fixture->seen.released, 1);
}

#define UPLOAD "POST /upload HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=B\r\n"
#define PART(name) "--B\r\nContent-Disposition: form-data; name=" name "\r\n\r\n"

static void an_upload_is_handed_on_in_pieces_and_released(void **state) {
    struct fixture *fixture = *state;
    int before = now(&fixture->seen, &fixture->seen.uploads_released);
    check(fixture, UPLOAD "Content-Length: 59\r\n" END PART("a") "hello\r\n--B--", "HTTP/1.1 200 ",
          "\r\n\r\n5");
    wait_for(&fixture->seen, &fixture->seen.uploads_released, before + 1);
}

static void an_upload_can_be_refused_before_its_end(void **state) {
    struct fixture *fixture = *state;
    int before = now(&fixture->seen, &fixture->seen.uploads_released);
    check(fixture, UPLOAD "Content-Length: 90000\r\n" END PART("bad") "hello", "HTTP/1.1 422 ",
          "{\"no\":1}");
    wait_for(&fixture->seen, &fixture->seen.uploads_released, before + 1);
    check(fixture, UPLOAD "Content-Length: 6\r\n" END "--B-xx", "HTTP/1.1 400 ", "{\"error\":");
    check(fixture, "POST /upload HTTP/1.1\r\nContent-Length: 1\r\n" END "x", "HTTP/1.1 400 ",
          "multipart/form-data");
}

static void a_body_over_the_limit_is_refused_as_soon_as_known(void **state) {
    struct fixture *fixture = *state;
    check(fixture, UPLOAD "Content-Length: 100001\r\n" END, "HTTP/1.1 413 ", "100000 bytes");
    struct buf text, answer;
    buf_init(&text, 8 << 20);
    buf_add_text(&text, UPLOAD "Transfer-Encoding: chunked\r\n" END "400000\r\n" PART("a"));
    for (int i = 0; i < 4000; i++) buf_add(&text, (char[1024]){0}, 1024);
    struct str got = exchange(fixture, buf_str(&text), &answer);
    assert_true(str_starts_with(got, STR("HTTP/1.1 413 ")));
    assert_true(has(got, "Connection: close"));
    buf_release(&answer);
    buf_release(&text);
}

static void bodies_kept_in_memory_are_bounded_together(void **state) {
    struct fixture *fixture = *state;
    struct buf text, answer;
    buf_init(&text, 8 << 20);
    buf_add_text(&text, "POST /echo HTTP/1.1\r\n" JSON "Content-Length: 600000\r\n" END);
    for (int i = 0; i < 599999; i++) buf_add_byte(&text, 'x');
    int first = dial(fixture);
    say(first, buf_str(&text)); /* all but one byte: it stays in memory */
    buf_add_byte(&text, 'x');
    struct http_status status;
    do http_status(fixture->server, &status);
    while (status.body_bytes < 599999);
    struct str got = exchange(fixture, buf_str(&text), &answer);
    assert_true(str_starts_with(got, STR("HTTP/1.1 503 ")));
    assert_true(has(got, "retry-after: "));
    buf_release(&answer);
    say(first, STR("x"));
    char line[13] = {0};
    assert_int_equal(recv(first, line, 12, MSG_WAITALL), 12);
    assert_string_equal(line, "HTTP/1.1 200");
    close(first);
    buf_release(&text);
}

static void a_plain_route_takes_at_most_a_mebibyte(void **state) {
    struct fixture *fixture = *state;
    check(fixture, "POST /plain HTTP/1.1\r\n" JSON "Content-Length: 1048577\r\n" END,
          "HTTP/1.1 413 ", "500000 bytes");
    check(fixture, "POST /plain HTTP/1.1\r\n" JSON "Content-Length: 2\r\n" END "{}",
          "HTTP/1.1 200 ", "{}");
}

/* A body that could never be kept is refused for good: a 503 would be tried again for ever. */
static void a_body_larger_than_the_memory_of_all_bodies_is_too_large(void **state) {
    check(*state, "POST /echo HTTP/1.1\r\n" JSON "Content-Length: 1000001\r\n" END, "HTTP/1.1 413 ",
          "1000000 bytes");
}

static int dial_from(const struct fixture *fixture, const char *address) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
    assert_int_equal(inet_pton(AF_INET, address, &from.sin_addr), 1);
    to.sin_port = htons(fixture->port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* One address leaves a thread for others, however many slow requests it has; a probe needs none. */
static void slow_requests_of_one_owner_leave_a_thread_for_others(void **state) {
    struct fixture *fixture = *state;
    int fds[3 * WORKERS + 1], count = 3 * WORKERS;
    for (int i = 0; i < count; i++) {
        fds[i] = dial(fixture);
        say(fds[i], STR("POST /block HTTP/1.1\r\n" JSON "Content-Length: 2\r\n" END "{}"));
    }
    wait_for(&fixture->seen, &fixture->seen.blocked, WORKERS - 1);
    fds[count] = dial_from(fixture, "127.0.0.2");
    say(fds[count], STR("POST /block HTTP/1.1\r\n" JSON "Content-Length: 2\r\n" END "{}"));
    wait_for(&fixture->seen, &fixture->seen.blocked, WORKERS);
    check(fixture, "GET /probe HTTP/1.1\r\n" END, "HTTP/1.1 200 ", "");
    let_go(&fixture->seen);
    for (int i = 0; i <= count; i++) {
        char line[13] = {0};
        assert_int_equal(recv(fds[i], line, 12, MSG_WAITALL), 12);
        close(fds[i]);
    }
}

/* An address with many connections keeps the library's thread busy; another one is answered. */
static void a_crowd_does_not_keep_the_library_from_others(void **state) {
    struct fixture *fixture = *state;
    int fds[CONNECTIONS_CROWD + 1];
    pthread_mutex_lock(&fixture->seen.lock);
    fixture->seen.holds_uploads = true;
    fixture->seen.may_go_on = false;
    pthread_mutex_unlock(&fixture->seen.lock);
    int before = now(&fixture->seen, &fixture->seen.blocked);
    for (int i = 0; i <= CONNECTIONS_CROWD; i++) fds[i] = dial_from(fixture, "127.0.0.3");
    say(fds[CONNECTIONS_CROWD], STR(UPLOAD "Content-Length: 90000\r\n" END PART("a") "hello"));
    wait_for(&fixture->seen, &fixture->seen.blocked, before + 1);
    int other = dial_from(fixture, "127.0.0.2");
    char line[13] = {0};
    say(other, STR("GET /health HTTP/1.1\r\n" END));
    assert_int_equal(recv(other, line, 12, MSG_WAITALL), 12);
    assert_string_equal(line, "HTTP/1.1 200");
    close(other);
    let_go(&fixture->seen);
    for (int i = 0; i <= CONNECTIONS_CROWD; i++) close(fds[i]);
}

/* The library's connections whose request it has not read yet. The sockets are in this process. */
static int unread_requests(void) {
    int found = 0;
    for (int fd = 0; fd < FDS_MAX; fd++) {
        int domain = 0, unread = 0;
        socklen_t bytes = sizeof domain;
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0 || domain != AF_UNIX)
            continue;
        found += ioctl(fd, FIONREAD, &unread) == 0 && unread > 0;
    }
    return found;
}

static void ask_probe(int fd) {
    say(fd, STR("GET /probe HTTP/1.1\r\nHost: localhost\r\n\r\n"));
}

static void expect_probe(int fd) {
    char text[4096];
    struct str got = {text, 0};
    while (!str_ends_with(got, STR("\r\n\r\nfine"))) {
        ssize_t more = recv(fd, text + got.bytes, sizeof text - got.bytes, 0);
        assert_true(more > 0);
        got.bytes += (size_t)more;
    }
}

/* While the library's thread is busy, so many connections send their next request that its epoll
 * has exactly as many events as it takes at once. It then waits for more before it looks at them,
 * and no more come. */
static void requests_that_fill_the_librarys_events_are_answered(void **state) {
    struct fixture *fixture = *state;
    struct seen *seen = &fixture->seen;
    enum { FIRST = CONNECTIONS_CROWD + ROUNDS, ALL = FIRST + LIBRARY_EVENTS };
    int fds[ALL];
    for (int i = 0; i < ALL; i++) fds[i] = dial_from(fixture, "127.0.0.4");
    for (int i = FIRST; i < ALL; i++) {
        ask_probe(fds[i]);
        expect_probe(fds[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&seen->lock);
        seen->may_go_on = false;
        pthread_mutex_unlock(&seen->lock);
        int before = now(seen, &seen->blocked);
        say(fds[CONNECTIONS_CROWD + round], STR("GET /stream-held HTTP/1.1\r\n" END));
        wait_for(seen, &seen->blocked, before + 1);
        for (int i = FIRST; i < ALL; i++) ask_probe(fds[i]);
        while (unread_requests() < LIBRARY_EVENTS) sched_yield();
        let_go(seen);
        for (int i = FIRST; i < ALL; i++) expect_probe(fds[i]);
        http_stream_end(seen->held);
    }
    for (int i = 0; i < ALL; i++) close(fds[i]);
}

/* Many times, because the end may come with the bytes before it or after them. */
static void an_upload_cut_off_by_its_client_is_released(void **state) {
    struct fixture *fixture = *state;
    static char bytes[60000];
    memset(bytes, 'x', sizeof bytes);
    for (size_t i = 0; i < 200; i++) {
        int before = now(&fixture->seen, &fixture->seen.uploads_released);
        int fd = dial(fixture);
        say(fd, STR(UPLOAD "Content-Length: 90000\r\n" END PART("a") "hel"));
        if (i % 3) say(fd, (struct str){bytes, i * 997 % sizeof bytes});
        if (i % 2) shutdown(fd, SHUT_WR);
        if (i % 2 == 0) close(fd);
        wait_for(&fixture->seen, &fixture->seen.uploads_released, before + 1);
        if (i % 2) close(fd);
    }
}

static void every_request_is_reported_when_it_is_over(void **state) {
    struct fixture *fixture = *state;
    int before = now(&fixture->seen, &fixture->seen.dones);
    check(fixture, "GET /health HTTP/1.1\r\n" END, "HTTP/1.1 200 ", "fine");
    wait_for(&fixture->seen, &fixture->seen.dones, before + 1);
    assert_int_equal(now(&fixture->seen, &fixture->seen.last_done_status), 200);
    struct http_status status;
    http_status(fixture->server, &status);
    assert_true(status.connections_total > 0);
}

static int open_server(void **state) {
    struct fixture *fixture = calloc(1, sizeof *fixture);
    pthread_mutex_init(&fixture->seen.lock, NULL);
    pthread_cond_init(&fixture->seen.changed, NULL);
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, "yes", 3);
    sha256_end(&hash, fixture->digests[0]);
    struct error error;
    const struct key_set_options keys = {
        .digests = (const unsigned char(*)[SHA256_BYTES])fixture->digests, .digest_count = 1};
    if (key_set_open(&fixture->keys, &keys, &error) != OK) return -1;
    struct http_options options = {
        .routes = routes,
        .route_count = sizeof routes / sizeof *routes,
        .keys = fixture->keys,
        .context = fixture,
        .done = request_done,
        .upload_bytes_max = UPLOAD_BYTES_MAX,
        .body_memory_bytes_max = BODY_MEMORY_BYTES_MAX,
        .ping_ms = PING_MS,
        .worker_threads = WORKERS,
    };
    *state = fixture;
    if (http_open(&fixture->server, &options, &fixture->port, &error) != OK) return -1;
    return http_start(fixture->server, &error) == OK ? 0 : -1;
}

static int close_server(void **state) {
    struct fixture *fixture = *state;
    http_stop_listening(fixture->server);
    http_close(fixture->server);
    key_set_close(fixture->keys);
    pthread_cond_destroy(&fixture->seen.changed);
    pthread_mutex_destroy(&fixture->seen.lock);
    free(fixture);
    return 0;
}

static void a_port_that_is_taken_is_an_error(void **state) {
    struct fixture *fixture = *state;
    struct http_server *second;
    struct error error;
    uint16_t port;
    struct http_options options = {.routes = routes, .route_count = 1, .port = fixture->port};
    assert_int_equal(http_open(&second, &options, &port, &error), ERR_UNAVAILABLE);
    options.host = "not-an-address";
    assert_int_equal(http_open(&second, &options, &port, &error), ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_comes_at_once_or_from_another_thread),
        cmocka_unit_test(bodies_come_whole_with_a_length_or_in_chunks),
        cmocka_unit_test(an_expected_100_continue_comes_before_the_answer),
        cmocka_unit_test(pipelined_requests_are_answered_in_order),
        cmocka_unit_test(a_framing_error_is_answered_after_the_requests_before_it),
        cmocka_unit_test(unknown_routes_and_methods_get_the_envelope),
        cmocka_unit_test(a_route_behind_a_key_wants_the_key),
        cmocka_unit_test(a_stream_written_by_another_thread_arrives_whole),
        cmocka_unit_test(a_stream_that_is_silent_gets_comment_lines),
        cmocka_unit_test(a_clients_own_request_id_is_kept_when_it_is_harmless),
        cmocka_unit_test(options_tells_what_may_be_done_with_a_path),
        cmocka_unit_test(a_stream_ends_when_its_client_leaves_or_does_not_read),
        cmocka_unit_test(a_file_comes_whole_or_in_the_range_asked_for),
        cmocka_unit_test(a_client_that_goes_away_is_told_to_the_handler),
        cmocka_unit_test(an_upload_is_handed_on_in_pieces_and_released),
        cmocka_unit_test(an_upload_can_be_refused_before_its_end),
        cmocka_unit_test(a_body_over_the_limit_is_refused_as_soon_as_known),
        cmocka_unit_test(bodies_kept_in_memory_are_bounded_together),
        cmocka_unit_test(a_plain_route_takes_at_most_a_mebibyte),
        cmocka_unit_test(a_body_larger_than_the_memory_of_all_bodies_is_too_large),
        cmocka_unit_test(slow_requests_of_one_owner_leave_a_thread_for_others),
        cmocka_unit_test(a_crowd_does_not_keep_the_library_from_others),
        cmocka_unit_test(requests_that_fill_the_librarys_events_are_answered),
        cmocka_unit_test(an_upload_cut_off_by_its_client_is_released),
        cmocka_unit_test(every_request_is_reported_when_it_is_over),
        cmocka_unit_test(a_port_that_is_taken_is_an_error),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
