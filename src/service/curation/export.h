/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* export: the newest judgements of a batch, with their lines, as JSONL for other programs.
 *
 *   jsonl      one line per judgement: {"custom_id","line","judgement","request","result","answer",
 *              "text"}; answer and text have the curator's corrections
 *   few_shot   {"messages":[…the request's…, {"role":"assistant","content":the answer}]}
 *   calibrate  the request's line with "expected", the true answers by question (cli/labelled_decisions.h)
 *   compare    the line of the output file, with the right answer
 *
 * All but jsonl have one line per line of the batch, and only lines on which all curators with an
 * opinion agree. few_shot has chats and completions, calibrate has decisions; other lines are left
 * out.
 *
 * Thread: one.
 * Memory: the texts of one line, as review_item.h bounds them, and 1 MiB of output.
 * Invariant: every line is pure ASCII, so that no reader splits it. */

#include "curation/review_item.h"

enum export_form {
    EXPORT_JSONL,
    EXPORT_FEW_SHOT,
    EXPORT_CALIBRATE,
    EXPORT_COMPARE,
    EXPORT_FORM_COUNT
};
extern const char *const export_names[]; /* NULL at the end */

struct export_options {
    enum export_form form;
    struct store *store;
    const char *batch_id;
    const struct review_lines *lines; /* NULL, with jsonl only: the batch's files are gone */
    struct large *large;
    uint64_t bytes_max;             /* limit for the whole export */
    bool (*is_gone)(void *context); /* the export ends when it is true; NULL: it never is */
    void *context;
};

/* Appends the lines to the spool. ERR_LIMIT above bytes_max; ERR_CANCELLED once is_gone is true. */
enum err export_write(struct store_spool *spool, const struct export_options *options,
                      struct error *error) MUST_CHECK;
