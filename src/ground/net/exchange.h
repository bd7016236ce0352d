/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* exchange: one request and its answer over libcurl's easy interface: the options that say what to
 * send, the callbacks that take the answer, and the waits that may be too long.
 *
 * The client (client.h) starts and ends it, and tells its owner.
 *
 * Thread: that of the client.
 * Memory: its buffers and libcurl's handle live from the client's opening to its closing, for one
 * exchange after another.
 * Invariant: a body that goes once is sent once: libcurl asks before it sends again. */

#include "base/buf.h"
#include "net/client.h"
#include "net/file_body.h"

#include <curl/curl.h>

struct net_exchange {
    struct net_client *client;                /* calls of libcurl's multi interface are its own */
    const struct net_client_options *options; /* the client's */
    CURL *easy;
    struct curl_slist *head;
    void *owner;
    enum net_stream stream;
    bool is_busy;
    bool goes_once; /* has a body that may not be repeated */
    bool is_sent, is_streamed, was_stopped, is_too_long;
    bool was_lost; /* its kept connection closed without a byte of an answer */
    size_t head_bytes;
    struct file_body file_body;
    int64_t first_byte_ms, stall_ms, text_ms;
    int64_t sent_ns, first_ns, last_ns; /* 0: not yet */
    struct buf out, in;
    char reason[CURL_ERROR_SIZE];
};

/* Prepares the exchange for a request; `client` and `options` are set, `in` and `out` empty. It is
 * busy from now on. key_line: a header with the key, NULL: none. */
void exchange_begin(struct net_exchange *exchange, const struct net_request *request,
                    const char *key_line);
/* Empties it for the next request, once libcurl has released it. */
void exchange_end(struct net_exchange *exchange);
/* The wait that took too long, as a predicate: "stopped in the middle of its answer"; NULL if none
 * did. libcurl itself watches connecting and `whole_ms`. */
const char *exchange_overdue(const struct net_exchange *exchange, int64_t now_ns);
