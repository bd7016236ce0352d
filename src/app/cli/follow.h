/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* follow: what `quern submit` and `quern retry` do with a new batch: they name it, watch it and
 * bring its results.
 *
 * Thread: main.
 * Memory: none. */

#include "cli/command.h"
#include "cli/results_show.h"
#include "cli/session.h"
#include "client/submission.h"

/* What happens after the batch exists; the values of follow_option_rows. */
struct follow_choice {
    struct results_wish results;
    int64_t seconds;
    bool watches;
};
extern const struct option follow_option_rows[];
void follow_set_defaults(struct follow_choice *choice);

/* A submission to the server of a session, whose progress goes to the terminal. */
struct submission follow_submission(struct session *session);
/* Prints the id of the new batch, or with --json the object; then watches it and brings its results
 * as `choice` says. Sets call->status. Releases `object`. */
enum err follow_batch(struct session *session, struct command_call *call,
                      const struct follow_choice *choice, bool json, json_t *object,
                      struct error *error) MUST_CHECK;
