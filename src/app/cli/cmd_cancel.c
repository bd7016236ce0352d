/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/one_batch.h"
#include "client/remote_batches.h"

static void show(struct session *session, const struct session_choice *choice,
                 const struct batch_object *batch, const json_t *object) {
    session_say(session, "%s is %s; results that exist stay: quern results %s", batch->id,
                batch->status, batch->id);
    if (choice->json) session_print_json(object);
}

static enum err run(struct command_call *call, struct error *error) {
    return one_batch_run(&(struct one_batch){"cancel", remote_batches_cancel, show}, call, error);
}

const struct command cmd_cancel = {
    .name = "cancel",
    .summary = "end a batch of a server early",
    .usage = "cancel ID [options]",
    .help = "Ends a batch of an OpenAI-compatible server. Results that exist stay.\n",
    ONE_BATCH_FRAME,
    .run = run,
};
