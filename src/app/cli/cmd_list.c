/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/batch_show.h"
#include "cli/command.h"
#include "client/remote_batches.h"
#include "client/results.h"

#include <stdio.h>

struct list_command {
    struct session_choice session;
    int64_t limit;
};

#define AT(field) offsetof(struct list_command, field)
static const struct option rows[] = {
    {"limit", OPTION_INTEGER, AT(limit), "N", .help = "batches to list (default 20)", .min = 1,
     .max = 1000000},
    {0},
};

#define NAMES_MAX 100 /* files that are asked for their names */

struct list {
    struct remote *remote;
    bool json;
    uint64_t count;
    bool is_begun;
    enum err err;
    struct error *error;
};

static bool take(void *context, const json_t *object) {
    struct list *list = context;
    struct batch_object batch;
    if (list->json) {
        session_print_json(object);
        return true;
    }
    list->err = batch_object_read(&batch, object, list->error);
    if (list->err != OK) return false;
    if (list->count++ < NAMES_MAX) results_name(list->remote, &batch);
    if (!list->is_begun) batch_show_heads();
    list->is_begun = true;
    batch_show_row(&batch);
    return true;
}

static enum err check(struct command_call *call, struct error *error) {
    const struct list_command *chosen = call->chosen;
    return session_check(&chosen->session, error);
}

static enum err run(struct command_call *call, struct error *error) {
    const struct list_command *chosen = call->chosen;
    struct session session;
    struct list list = {.json = chosen->session.json, .error = error};
    enum err err = session_open(&session, "list", &chosen->session, call->stop, error);
    list.remote = session.remote;
    if (err == OK)
        err = remote_batches_list(session.remote, (uint64_t)chosen->limit, take, &list, error);
    if (err == OK) err = list.err;
    if (err == OK && !list.is_begun && !list.json) session_say(&session, "no batches");
    session_close(&session);
    return err;
}

static void set_defaults(void *context) {
    struct list_command *chosen = context;
    session_set_defaults(&chosen->session);
    chosen->limit = 20;
}

static const struct option_table tables[] = {{rows, 0}, SESSION_TABLES(AT(session))};

const struct command cmd_list = {
    .name = "list",
    .summary = "list the batches of a server",
    .usage = "list [options]",
    .help = "Lists the batches of an OpenAI-compatible server, the newest first. A batch\n"
            "without a name has that of its file, for the first 100.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct list_command),
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
