/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* decision_log: one line of a run for a reader who knows neither quern nor language models: what
 * was asked, what answered with which settings, what was answered, who judged it, and whether the
 * files are those of the run.
 *
 *   {"object": "quern.decision_log", "custom_id", "is_proven": true,
 *    "sections": [{"heading", "entries": [{"label", "text"}]}],     for a person
 *    "request", "result", "judgements": [], "computed_by": []}      as the files have them
 *
 * Of a run over a table the request is {"custom_id", "row"}, unless the input that is given are its
 * requests; the result of a table of results is its row.
 *
 * Judgements are lines of JSONL with the custom_id, as the curation page exports them or as `quern
 * label-studio pull -o` writes them.
 *
 * Thread: one.
 * Memory: the lines of this custom_id; the caller owns the tree. */

#include "replay/run_proof.h"

struct decision_log_options {
    const char *custom_id;
    const char *judgements;   /* NULL: none are known */
    const char *signer_fault; /* why the signature does not count; "": it does */
    const volatile bool *stop;
};

/* ERR_NOT_FOUND: the input or the output has no such line. */
enum err decision_log_make(struct run_proof *proof, const struct decision_log_options *options,
                           json_t **ret_log, struct error *error) MUST_CHECK;
