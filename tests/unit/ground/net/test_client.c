/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "net/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACCEPT_MS 60000
#define WAIT_NS ((int64_t)120000000000)
#define EXCHANGES_MAX 4
#define CLOSE "close" /* in place of an answer: the connection is closed */
#define GOOD "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

/* --- a server that answers from a list --- */

/* Reads one request per answer. Takes a new connection when the client has closed the last one. */
struct server {
    int listener;
    int port;
    pthread_t thread;
    /* NULL at the end. An empty one: no answer until the client leaves. */
    const char *const *answers;
    struct buf requests;
    unsigned connections;
    unsigned read_count; /* whole requests */
};

static bool read_request(struct server *server, int fd) {
    size_t start = server->requests.bytes;
    char byte;
    size_t head_bytes = 0, body_bytes = 0;
    while (head_bytes == 0 || server->requests.bytes < head_bytes + body_bytes) {
        if (read(fd, &byte, 1) != 1) return false;
        buf_add_byte(&server->requests, byte);
        if (head_bytes > 0 || !str_ends_with(buf_str(&server->requests), STR("\r\n\r\n"))) continue;
        const char *length = strstr(server->requests.at + start, "Content-Length: ");
        head_bytes = server->requests.bytes;
        body_bytes = length ? strtoul(length + 16, NULL, 10) : 0;
    }
    return true;
}

static void *serve(void *context) {
    struct server *server = context;
    int fd = -1;
    for (const char *const *answer = server->answers; *answer;) {
        struct pollfd wait = {.fd = server->listener, .events = POLLIN};
        if (fd < 0) {
            if (poll(&wait, 1, ACCEPT_MS) != 1) break;
            fd = accept(server->listener, NULL, NULL);
            server->connections++;
        }
        if (!read_request(server, fd)) {
            close(fd);
            fd = -1;
            continue;
        }
        server->read_count++;
        if (strcmp(*answer, CLOSE) == 0) {
            close(fd);
            fd = -1;
        } else if (write(fd, *answer, strlen(*answer)) < 0) {
            abort();
        }
        answer++;
    }
    char byte;
    while (fd >= 0 && read(fd, &byte, 1) == 1) continue;
    if (fd >= 0) close(fd);
    return NULL;
}

static void start_server(struct server *server, const char *const *answers) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    *server = (struct server){.answers = answers};
    buf_init(&server->requests, 1 << 20);
    server->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(server->listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(server->listener, 8), 0);
    assert_int_equal(getsockname(server->listener, (struct sockaddr *)&address, &bytes), 0);
    server->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void stop_server(struct server *server) {
    pthread_join(server->thread, NULL);
    close(server->listener);
    buf_release(&server->requests);
}

/* --- the client's side --- */

struct heard {
    struct net_client *client;
    struct net_exchange *exchange;
    unsigned done;
    struct net_answer answer; /* its texts are gone after `done`; their copies: */
    char body[256], location[256], what[128], fault[128], mark[64];
    char streamed[256];
    bool stops, refuses;
};

static void copy(char *ret_text, size_t room, const char *text) {
    snprintf(ret_text, room, "%s", text ? text : "none");
}

static void on_done(void *context, const struct net_answer *answer) {
    struct heard *heard = context;
    struct str mark = {NULL, 0};
    heard->done++;
    heard->answer = *answer;
    snprintf(heard->body, sizeof heard->body, "%.*s", STR_ARGS(answer->body));
    copy(heard->location, sizeof heard->location, answer->location);
    copy(heard->what, sizeof heard->what, answer->what);
    copy(heard->fault, sizeof heard->fault, answer->fault);
    (void)net_exchange_header(heard->exchange, "x-mark", 0, &mark);
    snprintf(heard->mark, sizeof heard->mark, "%.*s", STR_ARGS(mark));
}

static bool on_bytes(void *context, void *owner, struct str piece) {
    struct heard *heard = context;
    assert_ptr_equal(owner, heard);
    strncat(heard->streamed, piece.at, piece.bytes);
    return !heard->stops;
}

static bool may_connect(void *context, void *owner, const struct sockaddr *address,
                        socklen_t bytes) {
    struct heard *heard = context;
    assert_ptr_equal(owner, heard);
    assert_int_equal(address->sa_family, AF_INET);
    assert_true(bytes >= sizeof(struct sockaddr_in));
    return !heard->refuses;
}

static void open_client(struct heard *heard) {
    static const char *const headers[] = {"X-Every: 1", NULL};
    struct error error;
    const struct net_client_options options = {.exchanges_max = EXCHANGES_MAX,
                                               .text_bytes_max = 100,
                                               .connect_ms = 60000,
                                               .key = "secret",
                                               .headers = headers,
                                               .context = heard,
                                               .bytes = on_bytes,
                                               .done = on_done,
                                               .may_connect = may_connect};
    *heard = (struct heard){0};
    assert_int_equal(net_client_open(&heard->client, &options, &error), OK);
}

/* Sends the request to the server and waits for its end. */
static void exchange(struct heard *heard, const struct server *server, struct net_request request) {
    char url[64];
    unsigned before = heard->done;
    int64_t until_ns = clock_monotonic_ns() + WAIT_NS;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/path", server->port);
    request.owner = heard;
    request.url = url;
    heard->streamed[0] = '\0';
    heard->exchange = net_client_start(heard->client, &request);
    while (heard->done == before && clock_monotonic_ns() < until_ns)
        net_client_poll(heard->client, 20);
    assert_int_equal(heard->done, before + 1);
    assert_ptr_equal(heard->answer.owner, heard);
}

/* --- tests --- */

static void an_exchange_keeps_its_connection_and_nothing_else(void **state) {
    (void)state;
    static const char *const answers[] = {
        "HTTP/1.1 429 Busy\r\nX-Mark: one\r\nRetry-After: 2\r\nretry-after-ms: 1500\r\n"
        "Content-Length: 2\r\n\r\nno",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes", NULL};
    static const char *const more[] = {"X-More: 2", NULL};
    struct server server;
    struct heard heard;
    start_server(&server, answers);
    open_client(&heard);
    exchange(&heard, &server,
             (struct net_request){.body = STR("{}"), .headers = more, .sends_key = true});
    assert_int_equal(heard.answer.end, NET_END_WHOLE);
    assert_int_equal(heard.answer.status, 429);
    assert_int_equal(heard.answer.retry_after_ms, 1500);
    assert_string_equal(heard.body, "no");
    assert_string_equal(heard.mark, "one");
    exchange(&heard, &server, (struct net_request){.range_from = 10, .range_to = 20});
    assert_int_equal(heard.answer.status, 200);
    assert_int_equal(heard.answer.retry_after_ms, -1);
    assert_string_equal(heard.body, "yes");
    assert_string_equal(heard.mark, "");
    net_client_close(heard.client);
    pthread_join(server.thread, NULL);
    char *second = strstr(server.requests.at, "GET /path HTTP/1.1\r\n");
    assert_int_equal(server.connections, 1);
    assert_non_null(second);
    assert_non_null(strstr(second, "Range: bytes=10-19\r\n"));
    assert_non_null(strstr(second, "X-Every: 1\r\n"));
    assert_null(strstr(second, "secret"));
    assert_null(strstr(second, "X-More"));
    *second = '\0';
    assert_non_null(strstr(server.requests.at, "POST /path HTTP/1.1\r\n"));
    assert_non_null(strstr(server.requests.at, "Authorization: Bearer secret\r\n"));
    assert_non_null(strstr(server.requests.at, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(server.requests.at, "X-Every: 1\r\n"));
    assert_non_null(strstr(server.requests.at, "X-More: 2\r\n"));
    close(server.listener);
    buf_release(&server.requests);
}

static void a_piece_of_a_file_goes_out_between_two_texts(void **state) {
    (void)state;
    static const char *const answers[] = {GOOD, GOOD, NULL};
    char path[] = "/tmp/quern-test-XXXXXX";
    struct server server;
    struct heard heard;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "0123456789", 10) == 10);
    unlink(path);
    const struct net_file form = {.fd = fd,
                                  .bytes = 4,
                                  .from = 3,
                                  .before = STR("<<"),
                                  .after = STR(">>\r\n"),
                                  .post_type = "multipart/form-data; boundary=x"};
    const struct net_file whole = {.fd = fd, .bytes = 10};
    start_server(&server, answers);
    open_client(&heard);
    exchange(&heard, &server, (struct net_request){.file = &form});
    assert_int_equal(heard.answer.status, 200);
    exchange(&heard, &server, (struct net_request){.file = &whole});
    assert_int_equal(heard.answer.status, 200);
    net_client_close(heard.client);
    pthread_join(server.thread, NULL);
    char *second = strstr(server.requests.at, "PUT /path HTTP/1.1\r\n");
    assert_non_null(second);
    assert_non_null(strstr(second, "\r\n\r\n0123456789"));
    *second = '\0';
    assert_non_null(strstr(server.requests.at, "POST /path HTTP/1.1\r\n"));
    assert_non_null(strstr(server.requests.at, "Content-Length: 10\r\n"));
    assert_non_null(
        strstr(server.requests.at, "Content-Type: multipart/form-data; boundary=x\r\n"));
    assert_non_null(strstr(server.requests.at, "\r\n\r\n<<3456>>\r\n"));
    close(fd);
    close(server.listener);
    buf_release(&server.requests);
}

static void a_redirect_is_told_and_not_followed(void **state) {
    (void)state;
    static const char *const answers[] = {
        "HTTP/1.1 307 There\r\nLocation: /other?a=b\r\nContent-Length: 0\r\n\r\n", NULL};
    struct server server;
    struct heard heard;
    char expected[64];
    start_server(&server, answers);
    open_client(&heard);
    exchange(&heard, &server, (struct net_request){0});
    snprintf(expected, sizeof expected, "http://127.0.0.1:%d/other?a=b", server.port);
    assert_int_equal(heard.answer.status, 307);
    assert_string_equal(heard.location, expected);
    net_client_close(heard.client);
    stop_server(&server);
}

static void a_stream_is_handed_on_only_where_it_was_asked_for(void **state) {
    (void)state;
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nContent-Length: "
        "5\r\n\r\n"
        "data:",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 206 Part\r\nContent-Length: 4\r\n\r\npart",
        "HTTP/1.1 404 None\r\nContent-Length: 4\r\n\r\nnone", NULL};
    static const struct {
        enum net_stream stream;
        const char *streamed, *body;
    } cases[] = {{NET_STREAM_EVENTS, "data:", ""},
                 {NET_STREAM_EVENTS, "", "{}"},
                 {NET_STREAM_BYTES, "part", ""},
                 {NET_STREAM_BYTES, "", "none"}};
    struct server server;
    struct heard heard;
    start_server(&server, answers);
    open_client(&heard);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exchange(&heard, &server, (struct net_request){.stream = cases[i].stream});
        assert_int_equal(heard.answer.end, NET_END_WHOLE);
        assert_string_equal(heard.streamed, cases[i].streamed);
        assert_string_equal(heard.body, cases[i].body);
    }
    net_client_close(heard.client);
    stop_server(&server);
}

/* One exchange with a server that gives `answer`. */
static void expect_end(const char *answer, struct net_request request, bool stops, enum net_end end,
                       const char *what) {
    const char *const answers[] = {answer, NULL};
    struct server server;
    struct heard heard;
    start_server(&server, answers);
    open_client(&heard);
    heard.stops = stops;
    exchange(&heard, &server, request);
    assert_int_equal(heard.answer.end, end);
    assert_string_equal(heard.what, what);
    assert_true(heard.answer.sent_ns > 0);
    net_client_close(heard.client);
    stop_server(&server);
}

static void each_kind_of_failure_has_its_end(void **state) {
    (void)state;
    const char *part = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart";
    const struct net_request bytes = {.stream = NET_STREAM_BYTES};
    char text[300];
    memset(text, 'a', sizeof text);
    memcpy(text, "HTTP/1.1 200 OK\r\n\r\n", 19);
    text[sizeof text - 1] = '\0';
    expect_end(text, (struct net_request){0}, false, NET_END_TOO_LONG,
               "sent an answer that is too long");
    expect_end(part, bytes, true, NET_END_STOPPED, "sent a stream that cannot be read");
    expect_end("nonsense\r\n\r\n", (struct net_request){0}, false, NET_END_BROKEN,
               "broke the exchange off");
    expect_end("", (struct net_request){.first_byte_ms = 50}, false, NET_END_TIMEOUT,
               "did not begin its answer in time");
    expect_end(part, (struct net_request){.stall_ms = 50}, false, NET_END_TIMEOUT,
               "stopped in the middle of its answer");
    expect_end(part, (struct net_request){.text_ms = 50}, false, NET_END_TIMEOUT,
               "did not end its answer in time");
    expect_end(part, (struct net_request){.whole_ms = 50}, false, NET_END_BROKEN,
               "broke the exchange off");
}

/* One request that makes a connection, then one that meets its end, then a last one. */
static void meet_a_closed_connection(struct net_request request, enum net_end end,
                                     const char *what) {
    static const char *const answers[] = {GOOD, CLOSE, GOOD, NULL};
    struct server server;
    struct heard heard;
    start_server(&server, answers);
    open_client(&heard);
    exchange(&heard, &server, request);
    assert_int_equal(heard.answer.end, NET_END_WHOLE);
    exchange(&heard, &server, request);
    assert_int_equal(heard.answer.end, end);
    assert_string_equal(heard.what, what);
    if (end != NET_END_WHOLE) {
        exchange(&heard, &server, request);
        assert_int_equal(heard.answer.end, NET_END_WHOLE);
    }
    net_client_close(heard.client);
    pthread_join(server.thread, NULL);
    assert_int_equal(server.read_count, 3);
    /* libcurl connects for its second send before it is stopped. */
    assert_int_equal(server.connections, end == NET_END_WHOLE ? 2 : 3);
    close(server.listener);
    buf_release(&server.requests);
}

static void a_body_goes_out_once_and_a_get_again_where_a_kept_connection_closes(void **state) {
    (void)state;
    meet_a_closed_connection((struct net_request){.body = STR("{}")}, NET_END_BROKEN,
                             "closed the connection without an answer");
    meet_a_closed_connection((struct net_request){.body = STR("{}"), .may_repeat = true},
                             NET_END_WHOLE, "");
    meet_a_closed_connection((struct net_request){0}, NET_END_WHOLE, "");
}

static void an_address_that_is_refused_gets_no_connection(void **state) {
    (void)state;
    static const char *const answers[] = {GOOD, NULL};
    struct server server;
    struct heard heard;
    start_server(&server, answers);
    open_client(&heard);
    heard.refuses = true;
    exchange(&heard, &server, (struct net_request){0});
    assert_int_equal(heard.answer.end, NET_END_UNSENT);
    assert_int_equal(heard.answer.sent_ns, 0);
    assert_string_equal(heard.what, "cannot be reached");
    heard.refuses = false;
    exchange(&heard, &server, (struct net_request){0});
    assert_int_equal(heard.answer.end, NET_END_WHOLE);
    assert_int_equal(server.connections, 1);
    net_client_close(heard.client);
    stop_server(&server);
}

static void an_aborted_exchange_has_no_end_and_frees_its_place(void **state) {
    (void)state;
    static const char *const answers[] = {GOOD, NULL};
    struct server server;
    struct heard heard;
    char url[64];
    start_server(&server, answers);
    open_client(&heard);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", server.port);
    for (int i = 0; i < 2 * EXCHANGES_MAX; i++) {
        struct net_exchange *one =
            net_client_start(heard.client, &(struct net_request){.owner = &heard, .url = url});
        net_client_abort(heard.client, one);
    }
    net_client_wake(heard.client);
    net_client_poll(heard.client, 60000);
    assert_int_equal(heard.done, 0);
    exchange(&heard, &server, (struct net_request){0});
    assert_int_equal(heard.answer.end, NET_END_WHOLE);
    net_client_close(heard.client);
    stop_server(&server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exchange_keeps_its_connection_and_nothing_else),
        cmocka_unit_test(a_piece_of_a_file_goes_out_between_two_texts),
        cmocka_unit_test(a_redirect_is_told_and_not_followed),
        cmocka_unit_test(a_stream_is_handed_on_only_where_it_was_asked_for),
        cmocka_unit_test(each_kind_of_failure_has_its_end),
        cmocka_unit_test(a_body_goes_out_once_and_a_get_again_where_a_kept_connection_closes),
        cmocka_unit_test(an_address_that_is_refused_gets_no_connection),
        cmocka_unit_test(an_aborted_exchange_has_no_end_and_frees_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
