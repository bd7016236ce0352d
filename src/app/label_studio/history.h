/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* history: the annotations of a Label Studio project that quern did not make, as judgements that
 * other commands read (`quern evaluate --compare-to`).
 *
 * One JSON object per annotation, in the order of tasks and of times of change:
 *
 *   {"custom_id", "curator", "created", "judgement", "task", "annotation", "ground_truth"}
 *
 *   custom_id   the task's meta.custom_id, else the member `id_field` of its data, else "task-N"
 *   judgement   {control: value}: choices as a text, or as a list where several may be chosen;
 *               numbers; ratings; texts. null for a skipped task, and
 *               for an annotation that a review has rejected (review.h)
 *
 * Controls that have regions (boxes, spans) have no value here; the report counts them.
 *
 * Thread: one.
 * Memory: one page of tasks, and the output, at most 4 GiB. */

#include "base/buf.h"
#include "label_studio/studio.h"

#include <stdint.h>

struct history_wish {
    int64_t project;
    const char *id_field; /* NULL: "custom_id" */
};

struct history_report {
    uint64_t tasks, annotations;
    uint64_t skipped;  /* annotations that say nothing: skipped or rejected */
    uint64_t left_out; /* results of controls that have no value here */
    uint64_t unnamed;  /* tasks without a custom_id */
};

/* Appends the lines. ERR_NOT_FOUND if there is no such project. */
enum err history_run(struct studio *studio, const struct history_wish *wish, struct buf *out,
                     struct history_report *ret_report, struct error *error) MUST_CHECK;
