/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/batch_watch.h"
#include "cli/command.h"

struct watch_command {
    struct session_choice session;
    int64_t seconds;
};

#define AT(field) offsetof(struct watch_command, field)
static const struct option rows[] = {
    {"seconds", OPTION_INTEGER, AT(seconds), "N", .help = "time between two looks (default 2 s)",
     .min = 1, .max = 3600},
    {0},
};

static enum err check(struct command_call *call, struct error *error) {
    const struct watch_command *chosen = call->chosen;
    return session_check_id(&chosen->session, call->operands[0], error);
}

static enum err run(struct command_call *call, struct error *error) {
    const struct watch_command *chosen = call->chosen;
    struct session session;
    struct batch_object batch;
    const struct batch_watch watch = {.id = call->operands[0],
                                      .seconds = chosen->seconds,
                                      .json = chosen->session.json,
                                      .stop = call->stop};
    enum err err = session_open(&session, "watch", &chosen->session, call->stop, error);
    if (err == OK) remote_set_patience_at_least(session.remote, SESSION_WATCH_S * 1000);
    if (err == OK) err = batch_watch(&session, &watch, &batch, error);
    if (err == OK) {
        batch_show_end(&session, &batch);
        call->status = batch_show_status(&batch);
    }
    terminal_end(&session.terminal);
    session_close(&session);
    return err;
}

static void set_defaults(void *context) {
    struct watch_command *chosen = context;
    session_set_defaults(&chosen->session);
    chosen->seconds = 2;
}

static const struct option_table tables[] = {{rows, 0}, SESSION_TABLES(AT(session))};

const struct command cmd_watch = {
    .name = "watch",
    .summary = "wait for the end of a batch, with its progress",
    .usage = "watch ID [options]",
    .help =
        "Shows the progress of a batch of an OpenAI-compatible server until it has ended, with\n"
        "rate and remaining time. A server that goes away is reported and waited for. Ctrl-C ends\n"
        "the watching, not the batch.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct watch_command),
    .operands_max = 1,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
