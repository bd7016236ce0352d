/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* message_requests: reads the body of a Message Batch, {"requests":[{"custom_id","params"},…]}, in
 * pieces of any size, and hands on each request as soon as it is whole. The body is never held.
 *
 * It checks the grammar of the whole body, the form of each request and the form of its custom_id.
 * It does not look into `params`: what is wrong there is the request's own error when it runs. It
 * does not know equal custom_ids, because it forgets a request once that is handed on.
 *
 * Thread: one per struct.
 * Memory: one request, at most MESSAGE_REQUEST_BYTES_MAX, and the doubling of its buffer.
 * Invariant: `take` gets the requests in the order of the body, each once. */

#include "json/refusal.h"

#define MESSAGE_REQUESTS_MAX 100000u
#define MESSAGE_REQUEST_BYTES_MAX ((size_t)16 << 20)
#define MESSAGE_CUSTOM_ID_BYTES_MAX 64

/* One request; the spans live until `take` returns. */
struct message_request {
    uint64_t index;                                  /* from 0 */
    char custom_id[MESSAGE_CUSTOM_ID_BYTES_MAX + 1]; /* A-Z a-z 0-9 _ - */
    struct str params;                               /* a valid JSON object */
};

struct message_requests {
    /* Takes a request. False, with *ret_refusal, refuses the body. */
    bool (*take)(void *context, const struct message_request *request, struct refusal *ret_refusal);
    void *context;
    uint64_t count; /* requests that were handed on */
    /* The rest is the reader's own. */
    unsigned place;
    bool is_first; /* no member or element stands before this place */
    bool is_list;  /* the member's name is `requests` */
    bool has_list;
    struct buf held; /* the key, value or request that is being read */
    uint64_t at;     /* bytes of the body before the next one */
    uint64_t held_at;
    size_t depth;
    bool in_string;
    bool is_escaped;
};

void message_requests_init(struct message_requests *reader,
                           bool (*take)(void *context, const struct message_request *request,
                                        struct refusal *ret_refusal),
                           void *context);
void message_requests_release(struct message_requests *reader);
/* Reads the next bytes. False, with *ret_refusal, for a body that is refused; then nothing more may
 * be fed. */
bool message_requests_feed(struct message_requests *reader, struct str bytes,
                           struct refusal *ret_refusal) MUST_CHECK;
/* Ends the body. False, with *ret_refusal, if it is not whole or has no request. */
bool message_requests_end(struct message_requests *reader, struct refusal *ret_refusal) MUST_CHECK;
