/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/batch_show.h"
#include "cli/command.h"
#include "cli/results_show.h"
#include "client/remote_batches.h"

struct chosen {
    struct session_choice session;
    struct results_wish wish;
};

#define AT(field) offsetof(struct chosen, field)
static const struct option rows[] = {
    {"output-file", OPTION_TEXT, AT(wish.output), "OUT",
     .help = "file of results (default: standard output)", .letter = 'o'},
    {"overwrite", OPTION_SWITCH, AT(wish.overwrite), .help = "replace OUT if it exists"},
    {0},
};

static enum err check(struct command_call *call, struct error *error) {
    const struct chosen *chosen = call->chosen;
    return session_check_id(&chosen->session, call->operands[0], error);
}

static enum err bring(struct session *session, struct command_call *call, struct error *error) {
    const struct chosen *chosen = call->chosen;
    const char *id = call->operands[0];
    struct batch_object batch;
    json_t *object;
    bool is_finished;
    enum err err = results_show_check(session, &chosen->wish, id, &is_finished, error);
    if (err == OK) err = remote_batches_get(session->remote, id, &object, error);
    if (err == OK) err = session_read_batch(object, &batch, error);
    if (err != OK) return err;
    if (is_finished)
        session_say(session,
                    "%s has all results of %s already; nothing is left to do "
                    "(--overwrite fetches them again)",
                    chosen->wish.output, id);
    else
        err = results_show(session, &chosen->wish, &batch, error);
    if (err == OK && chosen->session.json && chosen->wish.output) session_print_json(object);
    json_decref(object);
    if (err == OK && batch_object_is_over(&batch)) call->status = batch_show_status(&batch);
    return err;
}

static enum err run(struct command_call *call, struct error *error) {
    const struct chosen *chosen = call->chosen;
    struct session session;
    enum err err = session_open(&session, "results", &chosen->session, call->stop, error);
    if (err == OK) err = bring(&session, call, error);
    session_close(&session);
    return err;
}

static void set_defaults(void *context) {
    struct chosen *chosen = context;
    session_set_defaults(&chosen->session);
}

static const struct option_table tables[] = {{rows, 0}, SESSION_TABLES(AT(session))};

const struct command cmd_results = {
    .name = "results",
    .summary = "fetch the result lines of a batch",
    .usage = "results ID [-o OUT] [options]",
    .help =
        "Fetches the result lines of a batch: those of its output file, then those of its error\n"
        "file. OUT appears whole; after a break the same command goes on. A quern server also\n"
        "gives the results that a running batch has so far.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct chosen),
    .operands_max = 1,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
