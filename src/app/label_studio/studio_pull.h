/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* studio_pull: the annotations of a Label Studio project become judgements of a batch, each state
 * of an annotation exactly once.
 *
 * The curator of a judgement is the annotator's e-mail, or "label-studio:NUMBER". A judgement is
 * posted first and then written to the link. After a kill between the two the server still has it
 * under its id, so that it is not posted again.
 *
 * A conflict is an annotation whose fields differ from a judgement that another curator made on
 * quern. Both are kept, as records of different people, unless the user prefers one.
 *
 * Thread: one.
 * Memory: see kept_judgements.h and link.h; one page of tasks. */

#include "label_studio/link.h"
#include "label_studio/studio.h"

struct remote;

enum studio_pull_preference {
    STUDIO_PULL_BOTH,         /* conflicts are posted and shown */
    STUDIO_PULL_QUERN,        /* annotations in conflict are held back and shown */
    STUDIO_PULL_LABEL_STUDIO, /* conflicts are posted and not shown */
};

struct studio_pull_wish {
    const char *batch;
    struct remote *remote;       /* NULL: no server; judgements go into the link alone */
    const char *judgements_path; /* without a server: file of quern's judgements; NULL: none */
    enum studio_pull_preference preference;
    void *context;
    /* Takes one sentence about a conflict. */
    void (*show)(void *context, const char *sentence);
    /* Called after each page of tasks with the number of judgements of this pull so far. */
    void (*progress)(void *context, uint64_t pulled);
};

/* The counts of a pull; valid after an error, too. */
struct studio_pull_report {
    uint64_t pulled, known; /* known: states of earlier pulls */
    uint64_t conflicts, held;
};

/* ERR_CONFLICT if the link has no project yet. */
enum err studio_pull_run(struct studio *studio, struct link *link,
                         const struct studio_pull_wish *wish, struct studio_pull_report *ret_report,
                         struct error *error) MUST_CHECK;
