/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* studio_push: the answers of a batch become tasks of a Label Studio project, each exactly once.
 *
 * Label Studio does not recognize a repeated import. Therefore:
 *
 *     1. A chunk's custom_ids are written to the link before the import (link.h).
 *     2. After the import, whatever its answer, the project's new tasks are listed. A task whose
 *        meta has the batch and a custom_id is the task of that request.
 *     3. A chunk whose import got no answer may still be at work on the server. It
 *        counts as lost only `settle_ms` after its intent, and is then sent again.
 *     4. If it arrives even later, requests have two tasks. So after a repeated chunk the project
 *        is listed once more, and the newer of two tasks is removed, unless it has annotations.
 *
 * A push begins with a list of the whole project, which finds the tasks of a lost link again.
 *
 * Thread: one.
 * Memory: one chunk of tasks, and the custom_ids of the batch. */

#include "label_studio/link.h"
#include "label_studio/pairs.h"
#include "label_studio/studio.h"

#define STUDIO_PUSH_CHUNK_TASKS 500
#define STUDIO_PUSH_SETTLE_MS 30000

struct studio_push_wish {
    const char *title; /* title for a new project */
    int64_t project;   /* 0: a new one is made */
    /* No other batch has this id. The push finds the project of an earlier push without its link,
     * and makes a new project if that one is gone. */
    bool is_unique;
    int64_t settle_ms;
    void *context;
    /* Called after each chunk with the project and the number of answers that have a task. */
    void (*progress)(void *context, int64_t project, uint64_t tasks);
};

/* The counts of a push; valid after an error, too. */
struct studio_push_report {
    uint64_t pushed, known, unanswered; /* known: answers that already had a task */
    uint64_t unused;                    /* results of no request, and earlier ones of two */
    uint64_t found;                     /* tasks of the project that the link lacked */
    uint64_t removed;                   /* second tasks of a request */
};

enum err studio_push_run(struct studio *studio, struct link *link, struct pairs *pairs,
                         const struct studio_push_wish *wish, struct studio_push_report *ret_report,
                         struct error *error) MUST_CHECK;
