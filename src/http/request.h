/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request: the inside of struct http_request, shared by server.c and intake.c (the connection
 * thread), request.c (reading) and answer.c (answering). For these only.
 *
 * Life: made by the connection thread when the request line is read, filled with headers and body,
 * dispatched to a worker thread while libmicrohttpd has the connection suspended, answered from any
 * thread, which resumes the connection, and ended by the connection thread. Held by the connection
 * until then, by the handler from dispatch to answer, by a stream's response, and for a moment by
 * the gate while it tells that the client has gone.
 *
 * Invariant: `lock` guards the group so marked; the rest belongs to the connection thread until
 * `dispatched`, and to the handler from then until `answered`. */

#include "http/gate.h"
#include "http/http.h"
#include "http/range.h"
#include "http/route.h"

#include <microhttpd.h>
#include <pthread.h>

#define REQUEST_ARENA_BYTES_MAX ((size_t)1 << 20)
#define REQUEST_HEADERS_MAX 100
#define ANSWER_HEADERS_MAX 12

enum request_stage {
    REQUEST_NEW,     /* only the request line is known */
    REQUEST_BODY,    /* the body is being read */
    REQUEST_DISCARD, /* a small body is read to its end before an early answer */
    REQUEST_WHOLE,
};

enum answer_kind { ANSWER_BYTES, ANSWER_FILE, ANSWER_STREAM };

struct http_request {
    struct http_server *server;
    struct gate_connection *connection; /* held: a stream may outlive it */
    struct MHD_Connection *mhd;
    atomic_uint holds;
    struct arena arena;
    char id[HTTP_REQUEST_ID_BYTES];
    int64_t started_ns;

    const char *method;
    struct str target;
    struct route_match match;
    struct key_caller caller;
    bool has_route;
    struct route_pair query[ROUTE_QUERY_MAX];
    size_t query_count;
    struct route_pair headers[REQUEST_HEADERS_MAX];
    size_t header_count;

    enum request_stage stage;
    uint64_t body_seen;
    uint64_t body_bytes_max;
    struct buf body;
    uint64_t body_kept;          /* of it, in the server's sum */
    struct multipart *multipart; /* NULL: the body is kept */
    void *upload;
    bool upload_begun;

    /* what is answered; written once, by whoever sets `answered` */
    enum answer_kind kind;
    bool is_event_stream; /* one that may get comment lines */
    int status;
    struct MHD_Response *response; /* none until the connection thread makes it */
    struct http_header answer_headers[ANSWER_HEADERS_MAX];
    size_t answer_header_count;
    struct buf answer_body;
    int file_fd;
    struct range file_range;

    pthread_mutex_t lock; /* guards what follows */
    bool dispatched;
    bool suspended;
    bool answered;
    bool handler_done; /* the handler may not be called, nor told anything */
    bool over;         /* libmicrohttpd has ended the request: no resume any more */
    struct buf stream; /* waiting for the reader */
    bool stream_ended;
    bool stream_broken;
    void (*gone)(void *context);
    void (*quiet)(void *context);
    void (*release)(void *context);
    void *gone_context;
};

/* Made with one hold, the connection's. */
struct http_request *http_request_new(struct http_server *server,
                                      struct gate_connection *connection, const char *target);
void http_request_hold(struct http_request *request);
void http_request_drop(struct http_request *request);
/* The last hold is given back: the server may be closed when all its requests have said so. */
void http_server_forget(struct http_server *server, const struct http_request *request);
/* Answers with the error envelope; a 429 is retried after `retry_after_s`. */
void http_request_fail_later(struct http_request *request, const char *message,
                             uint32_t retry_after_s);
void http_request_fail(struct http_request *request, int status, const char *message,
                       const char *code);
/* The client has gone: on the gate's thread. */
void http_request_tell_gone(struct http_request *request);

/* A comment line for a stream that has had nothing to send for a while, so that proxies keep the
 * connection; a question to the handler of a request without an answer. Any thread. */
void http_request_tell_quiet(struct http_request *request);

/* Connection thread: gives libmicrohttpd the answer. */
enum MHD_Result http_answer_queue(struct http_request *request);
/* Connection thread: the answer as a whole HTTP message that ends the connection, for answers given
 * before the body was complete. */
void http_answer_write_message(struct http_request *request, struct buf *buf);
