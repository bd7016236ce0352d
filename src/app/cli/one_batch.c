/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/one_batch.h"

const struct option_table one_batch_tables[ONE_BATCH_TABLES] = {SESSION_TABLES(0)};

void one_batch_set_defaults(void *chosen) {
    session_set_defaults(chosen);
}

enum err one_batch_check(struct command_call *call, struct error *error) {
    return session_check_id(call->chosen, call->operands[0], error);
}

enum err one_batch_run(const struct one_batch *frame, struct command_call *call,
                       struct error *error) {
    const struct session_choice *chosen = call->chosen;
    struct session session;
    struct batch_object batch;
    json_t *object;
    enum err err = session_open(&session, frame->command, chosen, call->stop, error);
    if (err == OK) err = frame->ask(session.remote, call->operands[0], &object, error);
    if (err == OK) err = session_read_batch(object, &batch, error);
    if (err == OK) {
        frame->show(&session, chosen, &batch, object);
        json_decref(object);
    }
    session_close(&session);
    return err;
}
