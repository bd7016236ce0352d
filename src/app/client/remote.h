/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* remote: calls to a server that speaks the OpenAI API, one after another, with patience.
 *
 * A server may be down for a moment, restarting or busy. A call is therefore sent again, with
 * growing waits, until the server has been silent for `patience_ms`. A call whose repetition would
 * do its work twice is sent again only while the first one cannot have arrived; else the caller
 * asks the server for the outcome (remote_batches.h).
 *
 * The server may be hostile: answers are bounded, redirects are refused instead of followed, so
 * that the key goes to no other host, and texts of the server reach sentences only through
 * err_set, which leaves no control character in them.
 *
 * Thread: one.
 * Memory: owns the connections and the latest answer; borrows the texts of its options.
 * Invariant: at most one exchange at a time. */

#include "net/client.h"

#include <jansson.h>

struct remote;

#define REMOTE_TEXT_BYTES_MAX ((size_t)64 << 20)

struct remote_options {
    const char *base_url;     /* without '/' at its end */
    const char *key;          /* NULL: none */
    const char *certificates; /* a file; NULL: the system's */
    int64_t patience_ms;      /* longest silence, before a call fails */
    bool expects_server;      /* while this machine itself refuses the connection, nothing listens:
                                 the call fails at once, unless the server has answered before */
    const char *key_advice;   /* the places of a key, for a refusal; NULL: quern's own */
    const char *url_option;   /* the option of the base URL; NULL: --base-url */
    const volatile bool *stop;
    void *context;
    /* Takes a sentence for the user, such as that the server is away. */
    void (*say)(void *context, const char *sentence);
};

/* Zero is a GET without a body. */
struct remote_call {
    const char *path;              /* behind the base URL, with its '/'; ids percent-encoded */
    bool at_root;                  /* the path stands behind the host, not behind /v1 */
    struct str body;               /* JSON to POST; at is NULL: none */
    bool is_delete;                /* DELETE in place of GET */
    const struct net_file *file;   /* to POST instead */
    const char *idempotency_key;   /* for the header; NULL: none */
    const char *authorization;     /* header line that replaces the key's; NULL: none */
    uint64_t range_from, range_to; /* as of net_request */
    int64_t answer_ms;             /* to the first byte of the answer; 0: REMOTE_ANSWER_MS */
    /* Takes the pieces of a 200 or 206; false ends the call. NULL: the answer is kept. */
    bool (*bytes)(void *context, struct str piece);
    void *context;
};
#define REMOTE_ANSWER_MS 120000

enum remote_end {
    REMOTE_ANSWERED, /* with a status, which may be one of failure */
    REMOTE_UNSENT,   /* the server has not got the call */
    REMOTE_LOST,     /* the server may have got it, and its answer was lost */
    REMOTE_REFUSED,  /* its certificate is not valid, or its answer is too long: no use in more */
    REMOTE_STOPPED,  /* `bytes` returned false */
};

/* Valid until the next call. */
struct remote_answer {
    enum remote_end end;
    int status;      /* 0: none */
    struct str body; /* body of an answer that is kept */
    int64_t retry_after_ms;
    bool is_nobody; /* REMOTE_UNSENT, because nothing listens there */
    bool has_last_line, is_incomplete;
    uint64_t last_line;  /* for a page of results: X-Last-Line and X-Incomplete */
    char sha256_hex[65]; /* an ETag that may be the sum of the whole file; empty: none came */
    char why[256];       /* reason for no answer: what the server did */
    char location[256];  /* target of a redirect */
};

enum err remote_open(struct remote **ret_remote, const struct remote_options *options,
                     struct error *error) MUST_CHECK;
void remote_close(struct remote *remote); /* NULL is allowed */
/* Raises the patience of the calls to come to this time, if it was shorter. */
void remote_set_patience_at_least(struct remote *remote, int64_t patience_ms);
/* Tells the user a sentence. */
void remote_say(const struct remote *remote, const char *format, ...) PRINTF_LIKE(2, 3);

/* Makes one attempt. OK for every end; ERR_CANCELLED if *stop became true. */
enum err remote_try(struct remote *remote, const struct remote_call *call,
                    struct remote_answer *ret_answer, struct error *error) MUST_CHECK;
/* The status of the answer that is coming; only from `bytes`. */
int remote_status(const struct remote *remote);
/* True for an answer after which a later attempt may do: no connection, 408, 429, 5xx. */
bool remote_may_pass(const struct remote_answer *answer);
/* Waits before the next attempt and tells why. ERR_UNAVAILABLE once the patience is used up, and
 * for answers that do not pass; ERR_CANCELLED if *stop became true. */
enum err remote_wait(struct remote *remote, const struct remote_answer *answer,
                     struct error *error) MUST_CHECK;
/* Tries until the server has answered well or has refused. For calls that may be repeated. */
enum err remote_get(struct remote *remote, const struct remote_call *call,
                    struct remote_answer *ret_answer, struct error *error) MUST_CHECK;
/* OK for a 2xx; else the error that the answer means, with the server's own message. */
enum err remote_judge(const struct remote *remote, const struct remote_answer *answer,
                      struct error *error) MUST_CHECK;
/* remote_get, remote_judge, and the JSON object of the answer, which the caller owns. */
enum err remote_get_json(struct remote *remote, const struct remote_call *call, json_t **ret_object,
                         struct error *error) MUST_CHECK;
