/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* model_query: the frame of the tools that ask a model itself, `quern embed` and `quern logits`:
 * their options, the model behind its sandbox, a JSON object in and one out for each record.
 *
 * It knows nothing of what is asked.
 *
 * Thread: main.  Memory: the caller's. */

#include "base/buf.h"
#include "cli/options.h"
#include "cpu/model.h"
#include "json/json.h"

struct model_query {
    const char *name; /* of the command */
    struct options_help help;
    struct option own; /* that the other tools do not have */
    /* Sets what this tool wants of the model; an error is about its own option. */
    enum err (*prepare)(struct model_query *query, struct model_options *options,
                        struct error *error);
    /* Appends the answer to one object, without a newline. An error is about this object alone. */
    enum err (*answer)(struct model_query *query, const json_t *object, struct buf *answer,
                       struct error *error);

    /* The rest is model_query_run's to fill; `answer` reads the last two. */
    const char *model_name, *kernels;
    bool reference, batch;
    int64_t threads;
    struct model *model;
    struct model_description is;
};

/* The whole command. Returns its exit status. */
int model_query_run(struct model_query *query, int argc, char **argv);
