/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* model_query: the common part of the tools that ask a model directly, `quern embed` and
 * `quern logits`: their shared options, the model behind its sandbox, one JSON object in and one
 * out per record.
 *
 * It does not know the questions.
 *
 * Thread: main.
 * Memory: the caller's struct. */

#include "base/buf.h"
#include "cli/options.h"
#include "json/json.h"
#include "model/model.h"

struct model_query {
    /* Filled by model_query_rows. */
    const char *model_name, *kernels;
    bool reference, batch;
    int64_t threads;

    /* Filled by the tool before model_query_run. `answer` appends the answer to one object, without
     * a newline; its error is about this object alone. */
    struct model_options options;
    enum err (*answer)(struct model_query *query, const json_t *object, struct buf *answer,
                       struct error *error);

    /* Filled by model_query_run; `answer` reads them. */
    struct model *model;
    struct model_description is;
};

extern const struct option model_query_rows[];

/* ERR_INVALID without --model. */
enum err model_query_check(const struct model_query *query, struct error *error) MUST_CHECK;
/* Opens the model, answers standard input, closes the model. */
enum err model_query_run(struct model_query *query, struct error *error) MUST_CHECK;
