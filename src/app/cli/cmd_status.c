/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/batch_show.h"
#include "cli/machine_show.h"
#include "cli/one_batch.h"
#include "client/remote_batches.h"
#include "client/results.h"

static void show(struct session *session, const struct session_choice *choice,
                 const struct batch_object *batch, const json_t *object) {
    if (choice->json) {
        session_print_json(object);
        return;
    }
    struct batch_object shown = *batch;
    results_name(session->remote, &shown);
    batch_show_page(&shown);
}

/* Without an id: the server's machine and its nodes. */
static enum err show_machine(struct command_call *call, struct error *error) {
    const struct session_choice *chosen = call->chosen;
    const struct remote_call get = {.path = "/machine"};
    struct session session;
    json_t *object;
    enum err err = session_open(&session, "status", chosen, call->stop, error);
    if (err == OK) err = remote_get_json(session.remote, &get, &object, error);
    if (err == OK) {
        if (chosen->json)
            session_print_json(object);
        else
            machine_show(object);
        json_decref(object);
    }
    session_close(&session);
    return err;
}

static enum err check(struct command_call *call, struct error *error) {
    return call->operands[0] ? one_batch_check(call, error) : session_check(call->chosen, error);
}

static enum err run(struct command_call *call, struct error *error) {
    if (!call->operands[0]) return show_machine(call, error);
    return one_batch_run(&(struct one_batch){"status", remote_batches_get, show}, call, error);
}

const struct command cmd_status = {
    .name = "status",
    .summary = "show one batch of a server, or the server with its nodes",
    .usage = "status [ID] [options]",
    .help =
        "Shows how far a batch of an OpenAI-compatible server is. Without ID, shows what a quern\n"
        "server has and does: models, waiting work, and nodes on other machines with their "
        "rates,\n"
        "requests in flight and last beats; the key needs the scope metrics.\n",
    .tables = one_batch_tables,
    .table_count = ONE_BATCH_TABLES,
    .chosen_bytes = sizeof(struct session_choice),
    .operands_max = 1,
    .stops = true,
    .set_defaults = one_batch_set_defaults,
    .check = check,
    .run = run,
};
