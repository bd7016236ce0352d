/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/batch_show.h"
#include "cli/command.h"
#include "cli/results_show.h"
#include "client/remote_batches.h"

struct results_command {
    struct session_choice session;
    struct results_wish wish;
};

#define AT(field) offsetof(struct results_command, field)
static const struct option rows[] = {
    {"output-file", OPTION_TEXT, AT(wish.output), "OUT",
     .help = "file of results, a table (.csv, .tsv, .parquet), or an s3://BUCKET/KEY (default: "
             "standard output)",
     .letter = 'o'},
    {"tmp-dir", OPTION_TEXT, AT(wish.folder), "DIR",
     .help = "folder of the local file of an s3://BUCKET/KEY (default: .)"},
    {"overwrite", OPTION_SWITCH, AT(wish.overwrite), .help = "replace OUT if it exists"},
    {"csv", OPTION_SWITCH, AT(wish.csv),
     .help = "write a table in CSV: cells of the input, then answers"},
    {"tsv", OPTION_SWITCH, AT(wish.tsv), .help = "write a table with tabs between its cells"},
    {"schema", OPTION_TEXT, AT(wish.schema), "F.json",
     .help = "JSON schema of the answers; each of its properties is a column of the table"},
    {"token-columns", OPTION_SWITCH, AT(wish.has_tokens),
     .help = "add the columns prompt_tokens and completion_tokens to the table"},
    {"excel-safe", OPTION_SWITCH, AT(wish.is_excel_safe),
     .help =
         "put an apostrophe before texts in the table that a spreadsheet would take for formulas"},
    {0},
};

static enum err check(struct command_call *call, struct error *error) {
    const struct results_command *chosen = call->chosen;
    const struct results_wish *wish = &chosen->wish;
    if (wish->csv && wish->tsv)
        return err_set(error, ERR_INVALID, "--csv and --tsv exclude each other");
    const char *wanted = wish->has_tokens      ? "token-columns"
                         : wish->is_excel_safe ? "excel-safe"
                         : wish->schema        ? "schema"
                                               : NULL;
    if (wanted && results_show_table(wish) == TABLE_NONE)
        return err_set(error, ERR_INVALID, "--%s is about tables: --csv, --tsv or -o OUT.csv",
                       wanted);
    return session_check_id(&chosen->session, call->operands[0], error);
}

static enum err bring(struct session *session, struct command_call *call, struct error *error) {
    const struct results_command *chosen = call->chosen;
    const char *id = call->operands[0];
    struct batch_object batch;
    json_t *object;
    bool is_finished, is_whole = true;
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
        err = results_show(session, &chosen->wish, &batch, &is_whole, error);
    if (err == OK && chosen->session.json && chosen->wish.output) session_print_json(object);
    json_decref(object);
    if (err == OK && batch_object_is_over(&batch)) call->status = batch_show_status(&batch);
    if (err == OK && !is_whole && call->status == EXIT_GOOD) call->status = EXIT_FAILED;
    return err;
}

static enum err run(struct command_call *call, struct error *error) {
    const struct results_command *chosen = call->chosen;
    struct session session;
    enum err err = session_open(&session, "results", &chosen->session, call->stop, error);
    if (err == OK) err = bring(&session, call, error);
    session_close(&session);
    return err;
}

static void set_defaults(void *context) {
    struct results_command *chosen = context;
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
        "gives the results that a running batch has so far. --csv, or a name that ends in .csv,\n"
        "makes a table of the requests and their results.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct results_command),
    .operands_max = 1,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
