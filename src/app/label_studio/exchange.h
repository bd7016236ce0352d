/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* exchange: one command of `quern label-studio`: answers of a batch become tasks of a project
 * (push), annotations become judgements (pull), or both, and judgements of quern become annotations
 * (sync).
 *
 * The link (link.h) is the memory of all of it, so that the same command goes on after a break.
 *
 * Thread: one.
 * Memory: borrows the wish. */

#include "client/remote.h"
#include "label_studio/studio_pull.h"
#include "label_studio/studio_push.h"
#include "label_studio/studio_send.h"

enum exchange_work {
    EXCHANGE_PUSH = 1,
    EXCHANGE_PULL = 2,
    EXCHANGE_SYNC = EXCHANGE_PUSH | EXCHANGE_PULL
};

struct exchange_wish {
    const char *batch; /* its id */
    enum exchange_work work;
    struct remote *remote; /* the server of the batch */
    const char *url;       /* Label Studio's, and its token */
    const char *token;
    const char *certificates; /* a file; NULL: the system's */
    int64_t patience_ms;
    const volatile bool *stop;
    const char *state;          /* path of the link; NULL: label-studio-ID.jsonl */
    const char *requests;       /* file of the requests; NULL: those of the server */
    const char *const *results; /* (result_count) files of their results, with `requests` */
    size_t result_count;
    const char *judgements; /* file of quern's judgements, with `requests`; NULL: none */
    const char *output;     /* file of the pulled judgements; NULL: none */
    bool overwrite;
    const char *title; /* title of a new project; NULL: "quern ID" */
    int64_t project;   /* number of an existing one; 0: a new one */
    bool is_unique;    /* as studio_push_wish has it */
    int64_t settle_ms;
    enum studio_pull_preference preference;
    bool has_events; /* prints its course on standard output (events.h) */
    void *context;
    void (*say)(void *context, const char *sentence);
};

/* The counts of the command. */
struct exchange_report {
    int64_t project;
    struct studio_push_report pushed;
    struct studio_pull_report pulled;
    struct studio_send_report sent;
};

enum err exchange_run(const struct exchange_wish *wish, struct exchange_report *ret_report,
                      struct error *error) MUST_CHECK;
