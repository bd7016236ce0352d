/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_web: GETs to a hub and to the servers it redirects to, several at once, over net/client.h.
 *
 * Redirects are followed here, a few in a row and only to URLs that pull_hub_may_ask allows; the
 * token goes only to URLs that are the hub's own (pull_hub_is_home). A transfer without a byte for
 * the hub's stall time, or with next to none for a minute, is broken off. The caller decides
 * whether and when to try again.
 *
 * Thread: one at a time.
 * Memory: pull_web_close ends all transfers and frees all; an answer is lent for the call. */

#include "hub/pull_hub.h"
#include "hub/pull_plan.h"

#define PULL_TEXT_BYTES_MAX ((size_t)32 << 20) /* of a list */

struct pull_web;

/* What is known of an answer when its first bytes come. */
struct pull_head {
    int status;
    bool has_range;       /* Content-Range, as it should be with status 206 */
    uint64_t from, total; /* total: UINT64_MAX when it is not said */
};

enum pull_end {
    PULL_END_WHOLE,
    PULL_END_BROKEN,  /* on the way: it may go better another time */
    PULL_END_STOPPED, /* `bytes` said so */
    PULL_END_REFUSED, /* sent to where we may not go, or round in a circle, or a text too long */
};

struct pull_answer {
    enum pull_end end;
    int status;
    struct str text;        /* of what has no `bytes`, and of errors */
    const char *url;        /* who answered, after all redirects */
    bool is_home;           /* that is the hub itself */
    int64_t retry_after_ms; /* negative: not said */
    char error_code[64], error_text[256];
    char next[PULL_URL_BYTES]; /* of a list in pages; empty: it was the last */
    char why[256];
};

struct pull_web_options {
    const struct pull_hub *hub; /* borrowed */
    uint32_t exchanges_max;
    void *context;
    /* A piece of an answer with status 200 or 206 to a request for bytes; false ends it. */
    bool (*bytes)(void *context, void *owner, const struct pull_head *head, struct str piece);
    /* The request is over; a new one may be started. */
    void (*done)(void *context, void *owner, const struct pull_answer *answer);
};

struct pull_request {
    void *owner;
    const char *url;
    bool wants_bytes;  /* else the text is kept for `done` */
    uint64_t from, to; /* asks for the bytes before `to`; to is 0: for all */
};

enum err pull_web_open(struct pull_web **ret_web, const struct pull_web_options *options,
                       struct error *error) MUST_CHECK;
void pull_web_close(struct pull_web *web); /* NULL is allowed */
/* Not more than exchanges_max at a time; the URL must be one that may be asked. */
void pull_web_start(struct pull_web *web, const struct pull_request *request);
/* Moves bytes and calls back, for about `timeout_ms`. */
void pull_web_poll(struct pull_web *web, int timeout_ms);

/* Whether the same request may well succeed later. */
bool pull_answer_is_passing(const struct pull_answer *answer);
/* How long to wait before try number `tries` (1 is the second): what the server says, up to ten
 * minutes, else longer each time. */
int64_t pull_answer_wait_ms(const struct pull_answer *answer, uint32_t tries);
