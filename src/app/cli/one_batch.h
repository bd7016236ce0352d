/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* one_batch: the frame of `quern status` and `quern cancel`, which make one call about one batch of
 * a server and show the batch in its answer.
 *
 * Thread: main.
 * Memory: none. */

#include "cli/command.h"
#include "cli/session.h"

struct one_batch {
    const char *command;
    enum err (*ask)(struct remote *remote, const char *id, json_t **ret_batch, struct error *error);
    /* Shows the batch; `object` is the JSON of the server. */
    void (*show)(struct session *session, const struct session_choice *choice,
                 const struct batch_object *batch, const json_t *object);
};

extern const struct option_table one_batch_tables[];
#define ONE_BATCH_TABLES 2

/* Members that all these commands share; `chosen` is a struct session_choice. */
#define ONE_BATCH_FRAME                                                                            \
    .tables = one_batch_tables, .table_count = ONE_BATCH_TABLES,                                   \
    .chosen_bytes = sizeof(struct session_choice), .operands_max = 1, .stops = true,               \
    .set_defaults = one_batch_set_defaults, .check = one_batch_check

void one_batch_set_defaults(void *chosen);
enum err one_batch_check(struct command_call *call, struct error *error) MUST_CHECK;
enum err one_batch_run(const struct one_batch *frame, struct command_call *call,
                       struct error *error) MUST_CHECK;
