/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* client: HTTP exchanges with other servers over libcurl: upstreams, model hubs, receivers of
 * webhooks.
 *
 * HTTP/1.1 kept alive, http and https only; no packed answer is asked for, and none unpacked unless
 * the caller wishes; no cookies, and no proxy unless asked for. It follows no redirect: the answer
 * says where one leads, and the caller decides whether to go there and what to show there. It
 * retries nothing. libcurl itself sends a request again if its kept connection closed without a
 * byte of an answer, although the server may have done it. So a request with a body ends as
 * NET_END_BROKEN, unless it may be repeated; a GET goes out again.
 *
 * Every exchange ends in one `done`, except an aborted one. Each kind of failure has its own `end`.
 * The caller learns whether the request went out: a request that did not go out was not run.
 *
 * Thread: one, which makes all calls but net_client_wake.
 * Memory: owns the exchanges; copies bodies, headers and the key; lends answers for the call.
 * Invariant: at most `exchanges_max` exchanges at once, each with at most `text_bytes_max` of its
 * answer in memory. The bytes of a body that may not be repeated go out at most once. */

#include "base/err.h"
#include "base/str.h"
#include "net/url.h"

#include <sys/socket.h>

struct net_client;
struct net_exchange;

enum net_end {
    NET_END_WHOLE,     /* an answer with its status */
    NET_END_UNSENT,    /* no connection, or none in time */
    NET_END_UNTRUSTED, /* also unsent: the server's certificate is not valid */
    NET_END_TIMEOUT,   /* no first byte, no further byte, or no end in time */
    NET_END_BROKEN,    /* the connection broke, or the answer was not HTTP */
    NET_END_TOO_LONG,  /* the head or the text of the answer passed its maximum */
    NET_END_STOPPED,   /* `bytes` returned false */
};

struct net_answer {
    void *owner;
    enum net_end end;
    int status;             /* 0: none came */
    struct str body;        /* the text of an answer that was not streamed */
    const char *location;   /* the absolute URL of a redirect; NULL: the answer is no redirect */
    int64_t retry_after_ms; /* negative: the answer does not say */
    int64_t reset_ms;       /* until its rate limit is reset; negative: the answer does not say */
    int64_t sent_ns;        /* 0: not sent */
    int64_t ended_ns;
    int os_error; /* errno of a connection that could not be made; 0: none */
    /* For a failure, each else empty: */
    const char *what;  /* what the server did, as a predicate: "cannot be reached" */
    const char *fault; /* libcurl's words for its kind; empty if libcurl sees no failure */
    const char *why;   /* the same with more detail, such as addresses: for logs */
};

struct net_client_options {
    uint32_t exchanges_max;     /* with one to spare if `done` starts exchanges */
    size_t text_bytes_max;      /* limit for an answer, unpacked */
    int64_t connect_ms;         /* to the end of the TLS handshake; 0: 300 s */
    const char *key;            /* for `Authorization: Bearer`; NULL: none */
    const char *const *headers; /* lines for every request, NULL at the end; NULL: none */
    const char *certificates;   /* a file of trusted certificates; NULL: the system's */
    bool proxy_from_environment;
    bool unpacks; /* answers that come packed, although none is asked for, are unpacked */
    bool wipes;   /* answers are secrets: their buffers never move, and are wiped */
    uint32_t slow_bytes_per_s; /* ends an exchange that stays slower for 60 s; 0: none */
    void *context;
    /* A piece of a streamed answer; false ends the exchange. Required for streams. */
    bool (*bytes)(void *context, void *owner, struct str piece);
    void (*done)(void *context, const struct net_answer *answer);
    /* Whether an exchange may connect to an address. The socket opens only after a yes, so that no
     * second look-up of a name can bring another address. NULL: every address is allowed. */
    bool (*may_connect)(void *context, void *owner, const struct sockaddr *address,
                        socklen_t bytes);
};

enum net_stream {
    NET_STREAM_NONE,   /* the answer is kept for `done` */
    NET_STREAM_EVENTS, /* a 2xx answer of type text/event-stream goes to `bytes` */
    NET_STREAM_BYTES,  /* a 200 or 206 answer goes to `bytes` */
};

/* A piece of an open file that a request sends; read at offsets of its own. */
struct net_file {
    int fd;
    uint64_t bytes;
    uint64_t from;            /* offset of the first of them */
    struct str before, after; /* sent around them; live as long as the exchange */
    const char *post_type;    /* the Content-Type of a POST; NULL: a PUT */
};

/* Times are in ms, and 0 means no limit. */
struct net_request {
    void *owner;
    const char *url;
    const struct net_url *checked_url; /* in place of `url`; lives as long as the exchange */
    const char *const *headers;        /* further lines, NULL at the end; NULL: none */
    struct str body;                   /* JSON to POST; at is NULL: GET */
    const struct net_file *file;       /* to send instead; lives as long as the exchange */
    bool is_delete;                    /* DELETE, without a body */
    bool sends_key;
    bool may_repeat; /* the body may go out again if the kept connection turns out to be closed */
    enum net_stream stream;
    uint64_t range_from, range_to; /* asks for the bytes before range_to; 0: for all */
    int64_t first_byte_ms;         /* from sending to the first byte of the answer */
    int64_t stall_ms;              /* between two bytes of the answer */
    int64_t text_ms;               /* from the first byte to the end, for an answer not streamed */
    int64_t whole_ms;              /* from the start to the end, connecting included */
};

enum err net_client_open(struct net_client **ret_client, const struct net_client_options *options,
                         struct error *error) MUST_CHECK;
/* Aborts the exchanges under way. NULL is allowed. */
void net_client_close(struct net_client *client);
/* Requests that start later have this key; NULL: none. */
void net_client_set_key(struct net_client *client, const char *key);
struct net_exchange *net_client_start(struct net_client *client, const struct net_request *request);
/* Closes its connection; no `done` follows. Not from `bytes`, `done` and `may_connect`. */
void net_client_abort(struct net_client *client, struct net_exchange *exchange);
/* Moves bytes and calls back. Without an exchange that ends, waits up to `timeout_ms` for more. */
void net_client_poll(struct net_client *client, int timeout_ms);
/* From any thread: the poll that waits, or the next one, returns at once. */
void net_client_wake(struct net_client *client);

/* The two below: only from `bytes` and `done`. */
int net_exchange_status(const struct net_exchange *exchange);
/* The value of header number `index` of that name; false if the answer has no such header. */
bool net_exchange_header(const struct net_exchange *exchange, const char *name, size_t index,
                         struct str *ret_value);
