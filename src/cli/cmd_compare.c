/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/compare_show.h"

struct chosen {
    int64_t top;
    double agreement_min;
    bool json;
};

#define AT(field) offsetof(struct chosen, field)
static const struct option rows[] = {
    {"top", OPTION_INTEGER, AT(top), "N",
     .help = "rows to show of those that differ most (default 5)", .max = COMPARISON_TOP_MAX},
    {"agreement-min", OPTION_NUMBER, AT(agreement_min), "S",
     .help = "least share of equal scores and labels, 0 to 1; with less, exit with 1 (default 0)",
     .max = 1},
    {"json", OPTION_SWITCH, AT(json), .help = "print one JSON object"},
    {0},
};

static void set_defaults(void *context) {
    struct chosen *chosen = context;
    chosen->top = 5;
}

static enum err check(struct command_call *call, struct error *error) {
    if (call->operands[1]) return OK;
    return err_set(error, ERR_INVALID, "two result files are needed: A.jsonl B.jsonl");
}

static enum err run(struct command_call *call, struct error *error) {
    const struct chosen *chosen = call->chosen;
    struct comparison comparison = {.fields = NULL};
    struct comparison_options options = {.paths = {call->operands[0], call->operands[1]},
                                         .top = (size_t)chosen->top,
                                         .stop = call->stop};
    enum err err = comparison_run(&comparison, &options, error);
    if (err == OK && comparison.joined == 0)
        err = err_set(error, ERR_INVALID, "the files have no custom_id in common");
    if (err == OK)
        err = chosen->json ? compare_show_json(&comparison, &options, error)
                           : compare_show_tables(&comparison, &options, error);
    if (err == OK && comparison_agreement(&comparison) < chosen->agreement_min)
        call->status = EXIT_FAILED;
    comparison_release(&comparison);
    return err;
}

static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_compare = {
    .name = "compare",
    .summary = "compare two result files of the same lines",
    .usage = "compare A.jsonl B.jsonl [--top N] [--agreement-min S] [--json]",
    .help =
        "Joins two result files by custom_id, in any order: of two models, or of two\n"
        "quantisations of one. Prints the agreement of each field of JSON answers and of\n"
        "decisions, the shift of scores from A to B, the correlations of their ranks (Spearman,\n"
        "Kendall's tau-b), ties, tokens, and the rows that differ most.\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct chosen),
    .operands_max = 2,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
