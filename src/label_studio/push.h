/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* push: the answers of a batch become tasks of a Label Studio project, each exactly once.
 *
 * Label Studio has no key by which a repeated import is known. Therefore:
 *
 *     1. A chunk's custom_ids are written to the link before the import (link.h).
 *     2. After the import, whatever its answer, the project's new tasks are listed. A task whose meta
 *        has the batch and a custom_id is the task of that request.
 *     3. A chunk whose import got no answer may still be at work on the server. It counts as not
 *        arrived only `settle_ms` after its intent; then it is sent again.
 *     4. If it arrives even later, requests have two tasks. After a chunk was sent again the project
 *        is listed once more, and the newer of two tasks is removed, unless somebody annotated it.
 *
 * A push begins with a list of the whole project: tasks that a lost link has known are found again.
 *
 * Thread: one.
 * Memory: one chunk of tasks. */

#include "label_studio/link.h"
#include "label_studio/pairs.h"
#include "label_studio/studio.h"

#define PUSH_CHUNK_TASKS 500
#define PUSH_SETTLE_MS 30000

struct push_wish {
    const char *title; /* of a new project */
    int64_t project;   /* 0: a new one is made */
    int64_t settle_ms;
};

/* What a push has done; also after an error. */
struct push_report {
    uint64_t pushed, known, unanswered; /* known: they have a task already */
    uint64_t found;                     /* tasks that were there without being in the link */
    uint64_t removed;                   /* second tasks of a request */
};

enum err push_run(struct studio *studio, struct link *link, struct pairs *pairs,
                  const struct push_wish *wish, struct push_report *ret_report,
                  struct error *error) MUST_CHECK;
