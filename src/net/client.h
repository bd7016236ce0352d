/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* client: exchanges with one HTTP server over libcurl: HTTP/1.1 kept alive, http and https
 * only, no redirects, no decompression, no cookies, and no proxy unless asked for.
 *
 * Every exchange ends in one `done`, but for those that are aborted. Each way not to get an answer
 * has its own `end` and its own sentence. Whether a request went out is known: what was not sent
 * was not run.
 *
 * Thread: one, which calls everything but net_client_wake.  Memory: owns the exchanges; bodies
 * are copied in, and answers borrowed for the call.  Invariant: at most `exchanges_max` at a time,
 * each with at most `answer_bytes_max` of answer in memory. */

#include "base/err.h"
#include "base/str.h"

struct net_client;
struct net_exchange;

enum net_end {
    NET_END_WHOLE,    /* an answer with its status */
    NET_END_UNSENT,   /* no connection, or none in time */
    NET_END_TIMEOUT,  /* no first byte, no further byte, or no end in time */
    NET_END_BROKEN,   /* the connection broke, or what came was not HTTP */
    NET_END_TOO_LONG, /* more than the cap */
    NET_END_STOPPED,  /* `bytes` answered false */
};

struct net_answer {
    void *owner;
    enum net_end end;
    int status;             /* 0 when none came */
    struct str body;        /* of what was not streamed */
    int64_t retry_after_ms; /* negative: it did not say */
    int64_t sent_ns, ended_ns;
    const char *what; /* not whole: what the server did, as a predicate: "cannot be reached" */
    char why[128];    /* libcurl's words for it, with addresses: for the log; may be empty */
};

struct net_client_options {
    const char *key; /* NULL: none */
    bool proxy_from_environment;
    uint32_t exchanges_max;
    uint64_t answer_bytes_max;
    int64_t connect_ms;
    void *context;
    /* A piece of a streamed answer with a 2xx status; false ends the exchange. */
    bool (*bytes)(void *context, void *owner, struct str bytes);
    void (*done)(void *context, const struct net_answer *answer);
};

struct net_request {
    void *owner;
    const char *url;
    struct str body; /* at is NULL: GET */
    bool is_stream;
    int64_t first_byte_ms; /* also to the end, of what is not streamed */
    int64_t stall_ms;
};

enum err net_client_open(struct net_client **ret_http, const struct net_client_options *options,
                         struct error *error) MUST_CHECK;
/* Aborts what is left. NULL is allowed. */
void net_client_close(struct net_client *http);
/* Not more than exchanges_max. */
struct net_exchange *net_client_start(struct net_client *http, const struct net_request *request);
/* Closes its connection; no `done` follows. Not from inside of `bytes` and `done`. */
void net_client_abort(struct net_client *http, struct net_exchange *exchange);
/* Moves bytes, calls `bytes` and `done`, and waits up to `timeout_ms` for more to do. */
void net_client_poll(struct net_client *http, int timeout_ms);
/* From any thread: the poll that waits, or the next one, returns at once. */
void net_client_wake(struct net_client *http);

/* A `retry-after` (seconds or an HTTP date) or `retry-after-ms` value as milliseconds from now;
 * negative when it is neither. */
int64_t net_retry_after_ms(struct str name, struct str value, int64_t now_unix_s);
