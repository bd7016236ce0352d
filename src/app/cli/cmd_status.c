/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/batch_show.h"
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

static enum err run(struct command_call *call, struct error *error) {
    return one_batch_run(&(struct one_batch){"status", remote_batches_get, show}, call, error);
}

const struct command cmd_status = {
    .name = "status",
    .summary = "show one batch of a server",
    .usage = "status ID [options]",
    .help = "Shows how far a batch of an OpenAI-compatible server is.\n",
    ONE_BATCH_FRAME,
    .run = run,
};
