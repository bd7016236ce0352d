/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* request: the inside of struct http_request. For server.c and intake.c (the connection thread),
 * request.c (reading) and answer.c (answering) only.
 *
 * The life of a request: the connection thread makes it when the request line is read and fills in
 * headers and body; it goes to a worker thread while libmicrohttpd has the connection suspended;
 * any thread answers it, which resumes the connection; the connection thread ends it.
 *
 * Thread: `lock` guards the members below it. The others belong to the connection thread until
 * `dispatched`, and to the handler from then until `answered`. The library has two such threads;
 * each connection stays with one of them.
 * Memory: freed with its last hold. The connection holds it until the end, the handler from
 * dispatch to answer, a stream's response as long as it lives, a worker thread while it reads a
 * piece of a source, and the gate during `gone` and `quiet`. */

#include "base/digest.h"
#include "http/gate.h"
#include "http/http.h"
#include "http/range.h"
#include "http/route.h"

#include <microhttpd.h>
#include <pthread.h>

#define REQUEST_ARENA_BYTES_MAX ((size_t)1 << 20)
#define REQUEST_HEADERS_MAX 100
#define ANSWER_HEADERS_MAX 20

enum request_stage {
    REQUEST_NEW,     /* only the request line is known */
    REQUEST_BODY,    /* the body is being read */
    REQUEST_DISCARD, /* a small body is read to its end, for an answer that is ready */
    REQUEST_WHOLE,
};

enum answer_kind { ANSWER_BYTES, ANSWER_FILE, ANSWER_STREAM, ANSWER_SOURCE };

struct http_request {
    struct http_server *server;
    struct gate_connection *connection; /* held, because a stream may outlive it */
    struct MHD_Connection *mhd;
    atomic_uint holds;
    struct arena arena;
    char id[HTTP_REQUEST_ID_BYTES];
    int64_t started_ns;

    const char *method;
    struct str target;
    struct route_match match;
    struct key_caller caller;
    enum origin_page page;
    bool has_route;
    bool is_known; /* a good key was shown, or none is needed */
    struct route_pair query[ROUTE_QUERY_MAX];
    size_t query_count;
    struct route_pair headers[REQUEST_HEADERS_MAX];
    size_t header_count;

    enum request_stage stage;
    uint64_t body_seen;
    uint64_t body_bytes_max;
    struct buf body;
    uint64_t body_kept;          /* bytes of it that count in the server's sum */
    uint64_t body_cost;          /* what each of them counts in the server's memory */
    struct multipart *multipart; /* NULL: `body` keeps the body */
    void *upload;
    bool upload_begun;

    /* The answer; the thread that sets `answered` writes it, once. */
    enum answer_kind kind;
    bool is_event_stream; /* a stream that may get comment lines */
    bool is_line_stream;  /* a stream of JSON objects, one per line, that may end in an error */
    int status;
    struct http_note *note;        /* in the arena; NULL: none */
    struct MHD_Response *response; /* NULL until the connection thread makes it */
    struct http_header answer_headers[ANSWER_HEADERS_MAX];
    size_t answer_header_count;
    struct buf answer_body;
    struct str static_body; /* in place of answer_body, if `at` is not NULL */
    uint64_t answer_kept;   /* bytes of it that count in the server's sum */
    int file_fd;
    struct range file_range;
    char file_sum[DIGEST_HEX_BYTES]; /* what file_body.h compares the bytes with; empty: nothing */
    struct digest file_digest;
    void (*file_damaged)(void *context, const char *sha256_hex);
    void *file_context;
    struct http_source source;
    void (*empty)(void *context); /* NULL: the stream's writer does not ask */
    void *empty_context;

    pthread_mutex_t lock; /* guards the members below */
    bool dispatched;
    bool suspended;
    bool answered;
    bool handler_done;    /* no call of the handler may follow */
    bool over;            /* libmicrohttpd has ended the request: it cannot be resumed */
    struct buf stream;    /* bytes that wait for the reader */
    size_t stream_kept;   /* bytes of its memory that count in the server's sum */
    uint64_t taken;       /* bytes of a stream or source that libmicrohttpd has taken */
    uint64_t source_left; /* bytes of the body that the source has not given yet */
    bool wants_piece;     /* a worker thread is to read the next piece of the source */
    bool stream_ended;
    bool stream_broken;
    void (*gone)(void *context);
    void (*quiet)(void *context);
    void (*release)(void *context);
    void *gone_context;
};

/* Makes a request with one hold, the connection's. */
struct http_request *http_request_new(struct http_server *server,
                                      struct gate_connection *connection, const char *target);
void http_request_hold(struct http_request *request);
void http_request_drop(struct http_request *request);
/* A request was freed: the server may be closed once all its requests are. */
void http_server_forget(struct http_server *server, const struct http_request *request);
/* Adds a header to the answer, whichever it becomes. Before it is given. */
void http_request_add_header(struct http_request *request, const char *name, struct str value);
/* Answer with the error object; _later with 429 and the seconds after which to try again. */
void http_request_fail_later(struct http_request *request, const char *message,
                             uint32_t retry_after_s);
/* True, and answered with 503, if the request may not be handled now, or if what it has done may
 * not be answered yet (http_options.hold). */
bool http_request_is_held(struct http_request *request);
bool http_request_is_refused(struct http_request *request);
void http_request_fail(struct http_request *request, int status, const char *message,
                       const char *code);
/* Tells the handler that the client has gone; on the gate's thread. */
void http_request_tell_gone(struct http_request *request);

/* Sends a comment line in a stream that was silent for a while, so that proxies keep the
 * connection; calls `quiet` of a request without an answer. Any thread. */
void http_request_tell_quiet(struct http_request *request);

/* Reads the next piece of an answer's source, if the request wants one. Worker thread. */
bool http_answer_refill(struct http_request *request);
/* Gives libmicrohttpd the answer. Connection thread. */
enum MHD_Result http_answer_queue(struct http_request *request);
/* Appends the answer as a whole HTTP message that ends the connection, for an answer given before
 * the body was complete. Connection thread. */
void http_answer_write_message(struct http_request *request, struct buf *buf);
