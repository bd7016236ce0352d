/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* submit: a file of requests made a batch of a server: sent, priced if the user set a limit,
 * created once, and followed to its results if the user wants that.
 *
 * Commands that make a batch share it: `quern submit` and `quern retry`.
 *
 * Thread: main.
 * Memory: none. */

#include "cli/command.h"
#include "cli/price_options.h"
#include "cli/results_show.h"
#include "cli/session.h"
#include "cli/submit_input.h"

/* What happens after the batch exists; the values of follow_option_rows. */
struct follow_choice {
    struct results_wish results;
    int64_t seconds;
    bool watches;
};
extern const struct option follow_option_rows[];
void follow_set_defaults(struct follow_choice *choice);

/* The limit of the cost of a file, and the prices for a preflight. */
struct cost_choice {
    double cost_max; /* 0: no limit, and no preflight */
    struct prices prices;
};

struct submit_wish {
    const char *endpoint; /* NULL: that of the first line */
    const char *window;
    const char *submission; /* NULL: a random one */
    struct option_list metadata;
    struct cost_choice cost;
};

/* ERR_INVALID for metadata that is no NAME=VALUE, a submission that is no id, and a limit of the
 * cost without any price. */
enum err submit_check(const struct submit_wish *wish, struct error *error) MUST_CHECK;
/* Sends the input and makes the batch, which the caller owns. The batch of the same submission is
 * taken if the server has it already. ERR_LIMIT if it would cost too much. */
enum err submit_make(struct session *session, const struct submit_wish *wish,
                     const struct submit_input *input, json_t **ret_batch,
                     struct error *error) MUST_CHECK;
/* Prints the id of the new batch, or with --json the object; then watches it and brings its results
 * as `choice` says. Sets call->status. Releases `object`. */
enum err submit_follow(struct session *session, struct command_call *call,
                       const struct follow_choice *choice, bool json, json_t *object,
                       struct error *error) MUST_CHECK;
