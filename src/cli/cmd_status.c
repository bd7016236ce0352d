/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/batch_show.h"
#include "cli/command.h"
#include "client/remote_batches.h"

static enum err check(struct command_call *call, struct error *error) {
    return session_check_id(call->chosen, call->operands[0], error);
}

static enum err run(struct command_call *call, struct error *error) {
    const struct session_choice *chosen = call->chosen;
    struct session session;
    struct batch_object batch;
    json_t *object;
    enum err err = session_open(&session, "status", chosen, call->stop, error);
    if (err == OK) err = remote_batches_get(session.remote, call->operands[0], &object, error);
    if (err == OK) err = session_read_batch(object, &batch, error);
    if (err == OK) {
        if (chosen->json)
            session_print_json(object);
        else
            batch_show_page(&batch);
        json_decref(object);
    }
    session_close(&session);
    return err;
}

static void set_defaults(void *context) {
    session_set_defaults(context);
}

static const struct option_table tables[] = {SESSION_TABLES(0)};

const struct command cmd_status = {
    .name = "status",
    .summary = "show one batch of a server",
    .usage = "status ID [options]",
    .help = "Shows how far a batch of an OpenAI-compatible server is.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct session_choice),
    .operands_max = 1,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
