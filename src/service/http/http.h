/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* http: one listener, its connections, and requests handed to handlers by a routing table.
 *
 * A connection passes the gate (gate.h), which checks framing, limits and pace on the raw socket
 * and notices that a client has gone. Behind it libmicrohttpd reads requests and writes answers. A
 * handler runs on one of the server's worker threads once the body is complete, and answers at once
 * or later, from any thread. The folder knows no route's meaning, no store and no runner.
 *
 * Thread: open and close belong to one thread; a request belongs to the thread that answers it,
 * except where a function says otherwise.
 * Memory: a request and its texts live until it is answered (or its stream has ended).
 * Invariant: every request that a handler gets is answered exactly once, by http_answer*, or by
 * http_stream_begin … http_stream_end. */

#include "base/address.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/str.h"
#include "http/multipart.h"
#include "http/origin.h"
#include "keys/key_set.h"

#include <stdatomic.h>

#define HTTP_REQUEST_ID_BYTES 72 /* room for the 64 of a client's id, or "req_" and 32 digits */
#define HTTP_ROUTES_MAX 128
#define HTTP_PLAIN_BODY_BYTES_MAX ((uint64_t)1 << 20) /* limit for plain routes */
/* The memory that a body of each kind takes here at its peak, in times its bytes: the received
 * text, the copy of the one who answers it, and two on their way to it; or the text and its
 * tree. */
#define HTTP_LARGE_BODY_COST 4
#define HTTP_PLAIN_BODY_COST 8

struct http_server;
struct http_request;
struct tls;

typedef void (*http_handler_fn)(void *context, struct http_request *request);

/* Receives a body while it arrives, on the connection's thread: the parts of a multipart one, or
 * all bytes of a plain one. Any call may answer the request (http_answer): that refuses the rest of
 * the body and ends the connection. */
struct http_upload {
    void *(*begin)(void *context, struct http_request *request);
    void (*part)(void *upload, struct http_request *request, const struct multipart_part *part);
    void (*data)(void *upload, struct http_request *request, struct str bytes);
    void (*part_end)(void *upload, struct http_request *request);
    /* Called once, when the request is over, even if its body never became complete. */
    void (*release)(void *upload);
    /* The body is JSON, and no form: `data` gets all its bytes, and no call for parts comes. */
    bool is_plain;
    uint64_t bytes_max; /* the largest body (default http_options.upload_bytes_max) */
};

enum http_kind {
    HTTP_PLAIN,      /* takes bodies up to HTTP_PLAIN_BODY_BYTES_MAX */
    HTTP_LARGE_BODY, /* takes bodies up to body_bytes_max, and builds no tree of them */
    HTTP_QUICK,      /* answers at once, on a thread that no other route keeps busy */
};

struct http_route {
    const char *method;
    const char *pattern; /* see route.h */
    enum key_scope scope;
    http_handler_fn handler;
    const struct http_upload *upload; /* NULL: the body is kept in memory */
    const char *operation;            /* operationId, for logs, metrics and OpenAPI */
    enum http_kind kind;
};

#define HTTP_NOTE_BYTES 256

/* Why a request was refused, for the log; each text may be cut. */
struct http_note {
    char code[48];
    char param[96];
    char sentence[HTTP_NOTE_BYTES];
    bool is_foreign; /* the sentence came from a worker and may quote the request */
};

struct http_done {
    const char *request_id;
    const char *method;
    struct str path;    /* as the client sent it, percent-encoded, without the query */
    size_t route_index; /* SIZE_MAX: no row fitted */
    int status;         /* 0: the connection ended before an answer */
    int64_t duration_ns;
    uint64_t body_bytes;   /* in the request */
    uint64_t answer_bytes; /* in the answer's body; of a stream, those that the client has taken */
    const struct address *peer;
    const char *owner;
    const char *key_id;           /* public; empty for a fixed key, and where none is needed */
    bool is_known;                /* a good key was shown, or none is needed */
    const struct http_note *note; /* NULL: none */
};

/* An answer of the gate (gate.h), which no request stands behind. */
struct http_refused {
    const char *request_id;
    const struct address *peer;
    int status;
    const char *sentence; /* static */
};

/* Zero or NULL means the default that the comment names. */
struct http_options {
    const char *host; /* numeric address (default "127.0.0.1") */
    uint16_t port;    /* 0: any free port */
    struct tls
        *tls; /* certificate for HTTPS (tls.h), open until http_close (default: plain HTTP) */
    const struct http_route *routes;
    size_t route_count;
    struct key_set *keys; /* NULL: routes need no key */
    /* Names and pages that may use the server; `host` of the rules is not read. */
    struct origin_rules origins;
    void *context; /* for handlers, uploads and `done` */
    /* Writes the target that stands for one without a route of its own; false: none does. NULL: no
     * target has another name. */
    bool (*alias)(struct str target, struct buf *ret_target);
    /* Appends to the sentence about a path without a route what the client may have meant. NULL:
     * nothing is known. */
    void (*hint)(const char *method, struct str path, struct buf *sentence);
    /* True for a target whose bodies are JSON whatever their Content-Type says, if no web page sent
     * them. NULL: there is none. */
    bool (*is_lenient)(struct str target);
    /* Writes the body of an answer with status 400 or more in the form that the target's clients
     * read, from the error object of OpenAI's API; false: it is that one. NULL: it always is. */
    bool (*error_form)(struct str target, int status, struct str error, struct buf *ret_body);
    /* Why a request is not handled now, or, with `is_done`, why what it has done is not answered
     * yet: a static sentence for a 503. It may wait. On the thread of the handler, for answers
     * below 400 that are no streams of events. NULL, and where it gives NULL: nothing is held. */
    const char *(*hold)(void *context, const struct http_route *route, bool is_done);
    /* A request is over. On the connection's thread, which is one of two: calls may overlap. */
    void (*done)(void *context, const struct http_done *done);
    /* The gate has refused a connection or its bytes. On the gate's thread. NULL: not told. */
    void (*refused)(void *context, const struct http_refused *refused);
    uint32_t connections_max;          /* (default 1024) */
    uint32_t connections_per_peer_max; /* per address (default 256; loopback 7/8 of all) */
    uint32_t worker_threads;           /* (default 4) */
    uint64_t body_bytes_max;           /* the largest body kept in memory (default 32 MiB) */
    uint64_t body_memory_bytes_max; /* what all such bodies may cost together (default 256 MiB) */
    /* What all answers that wait for their clients may take together (default 256 MiB). */
    uint64_t answer_memory_bytes_max;
    uint64_t upload_bytes_max; /* the largest multipart body (default 2 GiB + 1 MiB) */
    uint64_t stream_bytes_max; /* waiting for a slow reader of a stream (default 4 MiB) */
    int64_t head_ms;  /* from the accept, or the first byte of a later header block, to the last
                         byte of the block (default 10 s) */
    int64_t idle_ms;  /* between two requests of a connection (default 75 s) */
    int64_t stall_ms; /* while a client takes no byte of its answer (default 120 s) */
    /* A body slower than this, measured over 10 s, is refused (default 1 KiB/s). */
    uint64_t body_bytes_per_s_min;
    int64_t ping_ms; /* before a silent stream gets a comment line (default 15 s) */
};

struct http_status {
    uint32_t connections;
    uint32_t requests_inflight;
    uint64_t body_bytes;    /* bytes of request bodies kept in memory */
    uint64_t body_memory;   /* bytes that these bodies are counted at */
    uint64_t answer_memory; /* bytes of answers that wait for their clients */
    uint64_t connections_total;
    uint64_t refused_total;      /* for framing, limits or pace */
    uint64_t keys_missing_total; /* 401 */
    uint64_t keys_wrong_total;   /* 401 */
    uint64_t keys_scope_total;   /* 403: the key lacks the route's scope */
    uint64_t keys_rate_total;    /* 429: too many requests */
    uint64_t keys_guessed_total; /* 429: too many wrong keys of the address */
};

/* Listens; *ret_port is the real port. Clients wait until http_start, so that no handler runs
 * before the caller has the server. ERR_UNAVAILABLE if the address is taken. */
enum err http_open(struct http_server **ret_server, const struct http_options *options,
                   uint16_t *ret_port, struct error *error) MUST_CHECK;
enum err http_start(struct http_server *server, struct error *error) MUST_CHECK;
/* Takes no new connections; open ones go on. */
void http_stop_listening(struct http_server *server);
/* Waits until every request has ended, then closes. Each must be answered, now or soon. */
void http_close(struct http_server *server);
void http_status(struct http_server *server, struct http_status *ret_status);

/* --- reading a request --- */

/* "req_…", or the client's X-Request-Id of 1 to 64 characters A-Z a-z 0-9 . _ - */
const char *http_request_id(const struct http_request *request);
const struct http_route *http_request_route(const struct http_request *request);
/* The caller that the key names; zero on an open route. */
const struct key_caller *http_request_caller(const struct http_request *request);
/* The address of the peer; behind a proxy, the address of the proxy. */
const struct address *http_request_peer(const struct http_request *request);
/* True if the caller has shown a good key, or none is needed. For open routes. */
bool http_request_is_known(const struct http_request *request);
struct str http_request_param(const struct http_request *request, size_t index);
/* The first value of a query key; `at` is NULL if the key is absent. */
struct str http_request_query(const struct http_request *request, const char *name);
/* The value number `index`, from 0 on, of a key that may be repeated. */
struct str http_request_query_nth(const struct http_request *request, const char *name,
                                  size_t index);
/* The first header of that name, in any case; empty if absent. */
struct str http_request_header(const struct http_request *request, const char *name);
/* True if the request has a header whose name begins with `start`. */
bool http_request_has_header_like(const struct http_request *request, const char *start);
struct str http_request_body(const struct http_request *request);
/* Moves the body out of the request; the caller releases it. */
struct buf http_request_take_body(struct http_request *request);
/* The pointer that http_upload's `begin` returned. */
void *http_request_upload(const struct http_request *request);
/* True once the request has an answer; for uploads. */
bool http_request_is_answered(struct http_request *request);
/* Memory for the handler that lives as long as the request. */
struct arena *http_request_arena(struct http_request *request);
/* True once the client has gone, for a handler whose work takes long. Any thread, before the
 * answer. */
bool http_request_is_gone(const struct http_request *request);
/* Registers two calls on another thread. `gone`: once, if the client disconnects before the answer
 * is complete, or has done so already. `release`: when the request is over; `gone` does not run
 * then. Either may be NULL. For at most one call per request, before it is answered. */
void http_request_on_gone(struct http_request *request, void (*gone)(void *context),
                          void (*release)(void *context), void *context);
/* Registers a call, with the same context and on another thread, for each ping_ms without an answer
 * and without a byte sent. After http_request_on_gone. A stream that has begun gets a comment line
 * instead. */
void http_request_on_quiet(struct http_request *request, void (*quiet)(void *context));

/* --- answering it --- */

/* Keeps the reason of a refusal for `done`. The first note counts. Before the answer. */
void http_request_note(struct http_request *request, const struct http_note *note);

struct http_header {
    const char *name;
    const char *value;
};

struct http_answer {
    int status;
    const char *content_type; /* NULL: application/json */
    struct str body;          /* copied, unless is_static */
    bool is_static;           /* the body lives as long as the process */
    const struct http_header *headers;
    size_t header_count;
};

/* An answer of up to HTTP_SMALL_ANSWER_BYTES is always given. A larger one that does not fit into
 * answer_memory_bytes_max becomes 503 with retry-after. */
void http_answer(struct http_request *request, const struct http_answer *answer);
/* Answers 200 with JSON, and takes the body over: a large one is never there twice. */
void http_answer_json(struct http_request *request, struct buf *body);
#define HTTP_SMALL_ANSWER_BYTES ((size_t)64 << 10)

/* A body that is read while its client takes it, so that a slow client costs one piece of
 * memory. */
#define HTTP_SIZE_UNKNOWN UINT64_MAX
struct http_source {
    /* Bytes in the whole body; HTTP_SIZE_UNKNOWN: it ends with an empty piece. */
    uint64_t bytes;
    void *context;
    /* Appends the next bytes of the body, at least one and at most `room`; none at the end of a
     * body of unknown size. False if they cannot be had: the client then sees a body that is cut
     * off. On a worker thread, one call at a time, after the handler has returned, too. */
    bool (*read)(void *context, size_t room, struct buf *buf);
    void (*release)(void *context); /* the request is over; on any thread */
};
#define HTTP_PIECE_BYTES ((size_t)8 << 10) /* the most that one call of `read` is asked for */

/* Answers with a source. `first` holds the first bytes of its body and is taken over;
 * answer->body is not read. */
void http_answer_source(struct http_request *request, const struct http_answer *answer,
                        struct buf *first, const struct http_source *source);

/* The bytes of an open file; Range, If-Range and If-None-Match apply. */
struct http_file {
    int fd; /* taken over */
    uint64_t bytes;
    const char *content_type;
    const char *etag;        /* with its quotes */
    const char *disposition; /* Content-Disposition, or NULL */
    /* What a whole body is compared with before its last piece is sent; NULL: it is not. */
    const char *sha256_hex;
    /* The bytes are not those of that sum, or end early: the answer breaks off. On the connection's
     * thread; `sha256_hex` is empty for a part. NULL: nobody is told. */
    void (*damaged)(void *context, const char *sha256_hex);
    void *context;
};

void http_answer_file(struct http_request *request, const struct http_file *file);

/* Answers 200 with an event stream, which http_stream_put then writes, from one thread at a
 * time. */
void http_stream_begin(struct http_request *request);
/* As http_stream_begin, with another content type. */
void http_stream_begin_as(struct http_request *request, const char *content_type);
/* Registers a call for each time that the client has taken all bytes and wants more. On the
 * connection's thread; `context` must live as long as the server. Before the stream begins. */
void http_stream_on_empty(struct http_request *request, void (*empty)(void *context),
                          void *context);
/* The bytes that were put and that the client has not taken yet. */
size_t http_stream_waiting(struct http_request *request);
/* Queues bytes without waiting. False if the client has gone or reads too slowly, so that more than
 * stream_bytes_max of its stream or answer_memory_bytes_max of all answers would wait: then nothing
 * more is sent but, in an event stream or one of x-ndjson, an event that says so, and the caller
 * still has to end the stream. */
bool http_stream_put(struct http_request *request, struct str bytes);
/* Ends the stream, and with it the request, which must not be used any more. */
void http_stream_end(struct http_request *request);
/* As http_stream_end, but the client notices that the stream is not whole. */
void http_stream_abort(struct http_request *request);
