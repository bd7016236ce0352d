/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/compare_show.h"

struct compare_command {
    int64_t top;
    double agreement_min;
    bool json;
    /* The prices of A, and those of B that differ. */
    struct compare_prices prices;
};

#define AT(field) offsetof(struct compare_command, field)
static const struct option rows[] = {
    {"top", OPTION_INTEGER, AT(top), "N",
     .help = "rows to show of those that differ most (default 5)", .max = COMPARISON_TOP_MAX},
    {"agreement-min", OPTION_NUMBER, AT(agreement_min), "S",
     .help = "least share of equal scores and labels, 0 to 1; with less, exit with 1 (default 0)",
     .max = 1},
    {"input-price", OPTION_NUMBER, AT(prices.at[COMPARISON_A].input_per_million), "P",
     .help = "price of a million input tokens", .max = 1e6},
    {"cached-price", OPTION_NUMBER, AT(prices.at[COMPARISON_A].cached_per_million), "P",
     .help = "price of a million cached input tokens (default: that of input)", .max = 1e6},
    {"output-price", OPTION_NUMBER, AT(prices.at[COMPARISON_A].output_per_million), "P",
     .help = "price of a million output tokens", .max = 1e6},
    {"b-input-price", OPTION_NUMBER, AT(prices.at[COMPARISON_B].input_per_million), "P",
     .help = "price of a million input tokens of B (default: that of A)", .max = 1e6},
    {"b-cached-price", OPTION_NUMBER, AT(prices.at[COMPARISON_B].cached_per_million), "P",
     .help = "price of a million cached input tokens of B (default: that of its input, else "
             "that of A)",
     .max = 1e6},
    {"b-output-price", OPTION_NUMBER, AT(prices.at[COMPARISON_B].output_per_million), "P",
     .help = "price of a million output tokens of B (default: that of A)", .max = 1e6},
    {"batch-discount", OPTION_NUMBER, AT(prices.at[COMPARISON_A].batch_discount), "S",
     .help = "share that is taken off both costs, 0 to 1 (default 0)", .max = 1},
    {"currency", OPTION_TEXT, AT(prices.at[COMPARISON_A].currency), "NAME",
     .help = "currency of all prices (default USD)"},
    {"json", OPTION_SWITCH, AT(json), .help = "print one JSON object"},
    {0},
};

static void set_defaults(void *context) {
    struct compare_command *chosen = context;
    chosen->top = 5;
    for (int i = 0; i < COMPARISON_SIDES; i++) prices_init(&chosen->prices.at[i]);
}

/* B has the prices of A that it has not of its own. */
static void complete_prices(struct compare_prices *prices) {
    const struct prices *a = &prices->at[COMPARISON_A];
    struct prices *b = &prices->at[COMPARISON_B];
    bool has_input = price_is_given(b->input_per_million);
    if (!has_input) b->input_per_million = a->input_per_million;
    /* An input price of its own is also the price of cached tokens, if that is not given. */
    if (!has_input && !price_is_given(b->cached_per_million))
        b->cached_per_million = a->cached_per_million;
    if (!price_is_given(b->output_per_million)) b->output_per_million = a->output_per_million;
    b->batch_discount = a->batch_discount;
    b->currency = a->currency;
}

static enum err check(struct command_call *call, struct error *error) {
    struct compare_command *chosen = call->chosen;
    complete_prices(&chosen->prices);
    if (call->operands[1]) return OK;
    return err_set(error, ERR_INVALID, "two result files are needed: A.jsonl B.jsonl");
}

static enum err run(struct command_call *call, struct error *error) {
    const struct compare_command *chosen = call->chosen;
    struct comparison comparison = {.fields = NULL};
    struct comparison_options options = {.paths = {call->operands[0], call->operands[1]},
                                         .top = (size_t)chosen->top,
                                         .stop = call->stop};
    enum err err = comparison_run(&comparison, &options, error);
    if (err == OK && comparison.joined == 0)
        err = err_set(error, ERR_INVALID, "the files have no custom_id in common");
    if (err == OK)
        err = chosen->json ? compare_show_json(&comparison, &options, &chosen->prices, error)
                           : compare_show_tables(&comparison, &options, &chosen->prices, error);
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
    .chosen_bytes = sizeof(struct compare_command),
    .operands_max = 2,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
