/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* submission: a file of requests made a batch of a server: sent, priced if the user set a limit,
 * and created once, whatever answers are lost on the way.
 *
 * Thread: main.
 * Memory: none. */

#include "client/remote.h"
#include "client/requests_file.h"
#include "costs/prices.h"

/* The server, and what the user is told meanwhile. */
struct submission {
    struct remote *remote;
    const char *base_url; /* for sentences */
    void *context;
    void (*say)(void *context, const char *sentence);
    void (*sending)(void *context, uint64_t bytes, uint64_t bytes_total);
    void (*sent)(void *context); /* the file is there, or was not taken */
};

/* The limit of the cost of a file, and the prices for a preflight. */
struct cost_choice {
    double cost_max; /* 0: no limit, and no preflight */
    struct prices prices;
};

struct submit_wish {
    const char *endpoint; /* NULL: that of the first line */
    const char *window;
    const char *submission;      /* NULL: a random one */
    const char *const *metadata; /* (metadata_count) "NAME=VALUE" */
    size_t metadata_count;
    struct cost_choice cost;
};

/* ERR_INVALID for metadata that is no NAME=VALUE, a submission that is no id, and a limit of the
 * cost without any price. */
enum err submit_check(const struct submit_wish *wish, struct error *error) MUST_CHECK;
/* Sends the input and makes the batch, which the caller owns. The batch of the same submission is
 * taken if the server has it already. ERR_LIMIT if it would cost too much. */
enum err submit_make(const struct submission *submission, const struct submit_wish *wish,
                     const struct requests_file *input, json_t **ret_batch,
                     struct error *error) MUST_CHECK;
