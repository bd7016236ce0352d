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

#define PULL_TEXT_BYTES_MAX ((size_t)32 << 20) /* the longest list of files */

struct pull_web;

/* The head of an answer, as far as a transfer of bytes needs it. */
struct pull_head {
    int status;
    bool has_range;       /* from a Content-Range; status 206 requires one */
    uint64_t from, total; /* total: UINT64_MAX if the header does not say it */
};

enum pull_end {
    PULL_END_WHOLE,
    PULL_END_BROKEN,  /* the connection or the server failed: another try may succeed */
    PULL_END_STOPPED, /* `bytes` returned false */
    PULL_END_REFUSED, /* a forbidden redirect, too many, a bad certificate, or a text too long */
};

struct pull_answer {
    enum pull_end end;
    int status;
    struct str text;        /* the text of an answer that did not go to `bytes` */
    const char *url;        /* the URL that answered, after all redirects */
    bool is_home;           /* that URL is on the hub itself */
    int64_t retry_after_ms; /* negative: the answer does not say */
    char error_code[64], error_text[256];
    char next[PULL_URL_BYTES]; /* the URL of the next page of a list; empty: none */
    char why[256];
};

struct pull_web_options {
    const struct pull_hub *hub; /* borrowed */
    uint32_t exchanges_max;
    void *context;
    /* A piece of an answer with status 200 or 206, if the request wants_bytes; false ends it. */
    bool (*bytes)(void *context, void *owner, const struct pull_head *head, struct str piece);
    /* The request is over, and a new one may be started. */
    void (*done)(void *context, void *owner, const struct pull_answer *answer);
};

struct pull_request {
    void *owner;
    const char *url;
    bool wants_bytes;  /* false: the text is kept for `done` */
    uint64_t from, to; /* asks for the bytes before `to`; to is 0: for all */
};

enum err pull_web_open(struct pull_web **ret_web, const struct pull_web_options *options,
                       struct error *error) MUST_CHECK;
void pull_web_close(struct pull_web *web); /* NULL is allowed */
/* At most exchanges_max at once. pull_hub_may_ask must take the URL. */
void pull_web_start(struct pull_web *web, const struct pull_request *request);
/* Moves bytes and calls back; waits up to `timeout_ms`. */
void pull_web_poll(struct pull_web *web, int timeout_ms);

/* Whether the same request may succeed later. */
bool pull_answer_is_passing(const struct pull_answer *answer);
/* The wait after `tries` failed tries: as long as the server asks for, at most ten minutes; else
 * 125 ms, doubled with each try up to 30 s, less a random quarter. */
int64_t pull_answer_wait_ms(const struct pull_answer *answer, uint32_t tries);
