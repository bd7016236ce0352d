/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "cli/command.h"
#include "cli/table_file.h"
#include "cli/table_options.h"

#include <stdio.h>
#include <string.h>

struct table_command {
    struct table_choice table;
    const char *output;
    bool overwrite;
};

#define AT(field) offsetof(struct table_command, field)
static const struct option rows[] = {
    {"output-file", OPTION_TEXT, AT(output), "OUT",
     .help = "file of requests that is made, or table of results", .letter = 'o',
     .only_flag = true},
    {"overwrite", OPTION_SWITCH, AT(overwrite), .help = "replace OUT if it exists",
     .only_flag = true},
    {0},
};

static enum err check(struct command_call *call, struct error *error) {
    struct table_command *chosen = call->chosen;
    const char *const *names = call->operands;
    if (!names[0] || !chosen->output)
        return err_set(error, ERR_INVALID, "%s is missing", names[0] ? "-o OUT" : "IN");
    chosen->table.joins = names[1] != NULL;
    enum err err = table_options_check(&chosen->table, names[0], chosen->output, error);
    if (err != OK) return err;
    bool makes_table =
        table_kind_of(chosen->output) != TABLE_NONE && table_kind_of(chosen->output) != TABLE_JSONL;
    if (chosen->table.table.prompt && (names[1] || makes_table))
        return err_set(error, ERR_INVALID,
                       names[1] ? "--prompt makes requests of one table, and %s is a second file"
                                : "--prompt makes requests, and %s is the name of a table",
                       names[1] ? names[1] : chosen->output);
    if (chosen->table.table.prompt) return OK;
    if (!names[1]) return err_set(error, ERR_INVALID, "RESULTS.jsonl is missing, or --prompt");
    if (chosen->table.limit > 0)
        return err_set(error, ERR_INVALID, "--limit is about the rows of a table");
    if (makes_table) return OK;
    return err_set(error, ERR_INVALID,
                   "-o %s: the name of a table ends in .csv, .tsv, .tab or .parquet",
                   chosen->output);
}

static enum err write_to_fd(void *context, const void *bytes, size_t count, struct error *error) {
    return os_write_all(*(const int *)context, bytes, count, error);
}

static enum err write_requests(void *context, int fd, struct error *error) {
    return offline_input_write(context, &(struct table_sink){&fd, write_to_fd}, error);
}

static void say(void *context, const char *sentence) {
    (void)context;
    fprintf(stderr, "quern table: %s\n", sentence);
}

static enum err run(struct command_call *call, struct error *error) {
    struct table_command *chosen = call->chosen;
    struct offline_input input = {.path = call->operands[0]};
    struct table_join_report report;
    enum err err = table_options_open(&chosen->table, chosen->output, &input, error);
    if (err != OK) return err;
    const char *output = strcmp(chosen->output, "-") == 0 ? NULL : chosen->output;
    struct table_file file = {output, chosen->overwrite, input.form,
                              input.table ? NULL : chosen->table.table.schema};
    if (input.table) return table_file_make(&file, write_requests, &input, error);
    const struct table_join join = {.requests = call->operands[0],
                                    .results = {call->operands[1], call->operands[2]},
                                    .result_count = call->operands[2] ? 2 : 1,
                                    .form = file.form};
    err = table_file_check(&file, error);
    if (err == OK) err = table_file_join(&file, &join, &report, error);
    if (err == OK && table_file_say(&file, &report, say, NULL)) call->status = EXIT_FAILED;
    return err;
}

static void release(void *context) {
    struct table_command *chosen = context;
    table_options_release(&chosen->table);
}

static const struct option_table tables[] = {{rows, 0}, {table_option_rows, AT(table)}};

const struct command cmd_table = {
    .name = "table",
    .summary = "make requests of a table, or a table of results",
    .usage = "table IN.csv --prompt F.jinja -o REQUESTS.jsonl [options]\n"
             "       quern table REQUESTS.jsonl RESULTS.jsonl [ERRORS.jsonl] -o OUT.csv [options]",
    .help =
        "With --prompt, makes a file of requests of the rows of a table, as quern run does, for\n"
        "any server of the Batches API. Without, joins requests and their results, in any\n"
        "order, to a table: the cells of each row, then its answer.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct table_command),
    .operands_max = 3,
    .check = check,
    .run = run,
    .release = release,
};
