/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* studio_send: the judgements made on quern become annotations of their tasks (annotation.h), each
 * exactly once.
 *
 * The newest judgement of each (line, curator) is sent. A change of mind is a further annotation,
 * as it is a further judgement on quern. Judgements that a pull has made are not sent back.
 *
 * The server refuses a second annotation with the same unique_id, so that a call may be repeated.
 * The link only saves calls.
 *
 * Thread: one.
 * Memory: see kept_judgements.h and link.h.
 * Invariant: a judgement that the link has as sent is not sent again. */

#include "label_studio/link.h"
#include "label_studio/pairs.h"
#include "label_studio/studio.h"

struct remote;

struct studio_send_wish {
    const char *batch;
    struct remote *remote;       /* as of a pull */
    const char *judgements_path; /* as of a pull */
    void *context;
    /* Called after each judgement with the number that were sent. */
    void (*progress)(void *context, uint64_t sent);
};

/* The counts; valid after an error, too. */
struct studio_send_report {
    uint64_t sent;
    uint64_t unsent; /* judgements of lines without a task, or without a control */
};

/* ERR_CONFLICT if the link has no project yet. */
enum err studio_send_run(struct studio *studio, struct link *link, struct pairs *pairs,
                         const struct studio_send_wish *wish, struct studio_send_report *ret_report,
                         struct error *error) MUST_CHECK;
