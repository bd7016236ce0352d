/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/os.h"
#include "base/printable.h"
#include "base/whole_file.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/evaluate_show.h"
#include "cli/price_options.h"
#include "cli/studio_source.h"
#include "cli/terminal.h"
#include "cli/tune_arguments.h"
#include "cli/vllm_options.h"
#include "evaluate/evaluation_json.h"
#include "evaluate/evaluation_page.h"
#include "tune/knobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNTIL_USUAL 0.9
#define SAMPLE_MAX 1000000000
#define TOP_MAX 1000
#define VALUE_BYTES 32
#define TEXT_BYTES 4096

struct evaluate_command {
    struct engine_choice choice;
    struct node_options node; /* only its models are used */
    struct prices prices;
    const char *folder, *reference, *id_field, *cascade, *by;
    double until; /* negative: not given */
    int64_t sample, top, top_k;
    struct option_list columns, knobs;
    const char *judged_results, *judgement_field;
    int64_t tune_lines, tune_rounds, tune_seconds;
    bool tune, json;

    /* Owned by the command: */
    struct evaluation evaluation;
    struct tune_arguments arguments[EVALUATION_MODELS_MAX];
    char folder_usual[TEXT_BYTES];
};

#define AT(field) offsetof(struct evaluate_command, field)
static const struct option rows[] = {
    {"output-dir", OPTION_TEXT, AT(folder), "DIR",
     .help = "folder of requests, results, figures and report (default: FILE.evaluation)",
     .letter = 'o', .only_flag = true},
    {"sample", OPTION_INTEGER, AT(sample), "N",
     .help = "requests to take of FILE, at equal distances (default 0: all)", .max = SAMPLE_MAX,
     .only_flag = true},
    {"compare-to", OPTION_TEXT, AT(reference), "NAME",
     .help = "one of the models, a file of results or judgements (JSONL), or label-studio:PROJECT, "
             "that the others are measured by",
     .only_flag = true},
    {"id-field", OPTION_TEXT, AT(id_field), "NAME",
     .help = "with label-studio:PROJECT: member of the tasks' data that has the custom_id "
             "(default: meta's, else custom_id)",
     .only_flag = true},
    {"compare-to-column", OPTION_LIST, AT(columns), "COLUMN[=FIELD]",
     .help = "column of the table that has the right value of a field; repeatable",
     .only_flag = true},
    {"judged-results", OPTION_TEXT, AT(judged_results), "F",
     .help = "results that the judgements of --compare-to accept or correct", .only_flag = true},
    {"judgement-field", OPTION_TEXT, AT(judgement_field), "FIELD",
     .help = "field of the judgements of --compare-to that are one value", .only_flag = true},
    {"cascade", OPTION_TEXT, AT(cascade), "A,B",
     .help = "models of which each gets only requests that the one before is unsure of, the "
             "cheapest first",
     .only_flag = true},
    {"until", OPTION_NUMBER, AT(until), "C",
     .help = "least confidence of an answer that ends a cascade, 0 to 1 (default 0.9)", .max = 1,
     .only_flag = true},
    {"top-k", OPTION_INTEGER, AT(top_k), "K",
     .help = "find the K requests with the largest values of a field of their answers, and compute "
             "of the others only what that takes",
     .max = SAMPLE_MAX, .only_flag = true},
    {"by", OPTION_TEXT, AT(by), "FIELD", .help = "the field of --top-k, a number",
     .only_flag = true},
    {"tune", OPTION_SWITCH, AT(tune),
     .help = "measure what each setting does to these requests: impact, saving and effort",
     .only_flag = true},
    {"knob", OPTION_LIST, AT(knobs), "NAME",
     .help = "option that --tune tries; repeatable (default: all seven)", .words = KNOB_WORDS,
     .only_flag = true},
    {"tune-lines", OPTION_INTEGER, AT(tune_lines), "N",
     .help = "requests of each trial of --tune (default 64)", .min = 1, .max = 10000,
     .only_flag = true},
    {"tune-rounds", OPTION_INTEGER, AT(tune_rounds), "N",
     .help = "trials of each setting (default 3)", .min = 1, .max = TUNE_ROUNDS_MAX,
     .only_flag = true},
    {"tune-seconds", OPTION_INTEGER, AT(tune_seconds), "N",
     .help = "time after which no trial begins (default 900 s)", .min = 1, .max = 604800,
     .only_flag = true},
    {"top", OPTION_INTEGER, AT(top), "N",
     .help = "rows to show of those that differ most, per pair (default 10)", .max = TOP_MAX,
     .only_flag = true},
    {"json", OPTION_SWITCH, AT(json), .help = "print one JSON object", .only_flag = true},
    {0},
};

static void set_defaults(void *context) {
    struct evaluate_command *chosen = context;
    engine_options_set_defaults(&chosen->choice);
    prices_init(&chosen->prices);
    chosen->top = 10;
    chosen->tune_lines = 64;
    chosen->tune_rounds = 3;
    chosen->tune_seconds = 900;
    chosen->until = -1;
}

static void release(void *context) {
    struct evaluate_command *chosen = context;
    evaluation_release(&chosen->evaluation);
    for (size_t i = 0; i < EVALUATION_MODELS_MAX; i++)
        tune_arguments_release(&chosen->arguments[i]);
    engine_options_release(&chosen->choice, &chosen->node);
}

static enum err check(struct command_call *call, struct error *error) {
    struct evaluate_command *chosen = call->chosen;
    struct engine_choice *choice = &chosen->choice;
    if (!call->operands[0]) return err_set(error, ERR_INVALID, "FILE is missing");
    if (choice->aliases.count > 0 || choice->served_names.count > 0)
        return err_set(error, ERR_INVALID,
                       "--alias and --served-model-name do not apply: each model runs all lines, "
                       "whatever model they name");
    if (choice->models.count + choice->upstreams.count > EVALUATION_MODELS_MAX)
        return err_set(error, ERR_LIMIT, "at most %d models can be evaluated at a time",
                       EVALUATION_MODELS_MAX);
    if (chosen->until >= 0 && !chosen->cascade)
        return err_set(error, ERR_INVALID, "--until goes with --cascade");
    if ((chosen->top_k > 0) != (chosen->by != NULL))
        return err_set(error, ERR_INVALID, "--top-k K and --by FIELD go together");
    if (chosen->top_k > 0 && chosen->cascade)
        return err_set(error, ERR_INVALID, "--top-k does not go with --cascade");
    if (chosen->columns.count > 0 && chosen->reference)
        return err_set(error, ERR_INVALID, "--compare-to-column does not go with --compare-to");
    if ((chosen->judged_results || chosen->judgement_field) && !chosen->reference)
        return err_set(error, ERR_INVALID,
                       "--judged-results and --judgement-field go with --compare-to");
    if (chosen->id_field && studio_source_project(chosen->reference) == 0)
        return err_set(error, ERR_INVALID,
                       "--id-field goes with --compare-to label-studio:PROJECT");
    if (chosen->knobs.count > 0 && !chosen->tune)
        return err_set(error, ERR_INVALID, "--knob goes with --tune");
    for (size_t i = 0; i < chosen->knobs.count; i++)
        if (!knobs_has(chosen->knobs.values[i]))
            return err_set(error, ERR_INVALID, "--knob: '%.60s' is none of the seven; see --help",
                           chosen->knobs.values[i]);
    if (!chosen->folder)
        snprintf(chosen->folder_usual, sizeof chosen->folder_usual, "%.4000s.evaluation",
                 call->operands[0]);
    return engine_options_check(choice, &chosen->node, error);
}

/* --- the models --- */

static enum err add_price(struct tune_arguments *arguments, const char *name, double price,
                          struct error *error) {
    char text[VALUE_BYTES];
    if (!price_is_given(price)) return OK;
    snprintf(text, sizeof text, "%.17g", price);
    return tune_arguments_add(arguments, name, text, error);
}

/* Options of the run that every model has: it takes all lines, and knows the prices. */
static enum err add_common(struct tune_arguments *arguments, const char *model,
                           const struct prices *prices, struct error *error) {
    char alias[TEXT_BYTES];
    snprintf(alias, sizeof alias, "*=%.4000s", model);
    enum err err = tune_arguments_add(arguments, "alias", alias, error);
    if (err == OK) err = tune_arguments_add(arguments, "result-cache-bytes", "0", error);
    if (err == OK) err = add_price(arguments, "watts", prices->watts, error);
    if (err == OK) err = add_price(arguments, "price-per-kwh", prices->per_kwh, error);
    if (err == OK) err = add_price(arguments, "rent-per-hour", prices->rent_per_hour, error);
    if (err == OK) err = add_price(arguments, "rent-speed", prices->rent_speed, error);
    if (err == OK) err = add_price(arguments, "input-price", prices->input_per_million, error);
    if (err == OK) err = add_price(arguments, "cached-price", prices->cached_per_million, error);
    if (err == OK) err = add_price(arguments, "output-price", prices->output_per_million, error);
    if (err == OK && prices->batch_discount > 0)
        err = add_price(arguments, "batch-discount", prices->batch_discount, error);
    if (err == OK && prices->currency)
        err = tune_arguments_add(arguments, "currency", prices->currency, error);
    return err;
}

static enum err add_model(struct evaluate_command *chosen, const struct model_choice *model,
                          struct error *error) {
    struct evaluation *evaluation = &chosen->evaluation;
    struct tune_arguments *arguments = &chosen->arguments[evaluation->count];
    struct candidate *candidate = &evaluation->candidates[evaluation->count++];
    snprintf(candidate->name, sizeof candidate->name, "%s", model->names[0]);
    candidate->arguments = arguments->at;
    enum err err = tune_arguments_fill(arguments, &chosen->choice, model, error);
    return err == OK ? add_common(arguments, model->names[0], &chosen->prices, error) : err;
}

/* NAME=URL: the model NAME of a server. */
static enum err add_upstream(struct evaluate_command *chosen, const char *text,
                             struct error *error) {
    struct evaluation *evaluation = &chosen->evaluation;
    struct tune_arguments *arguments = &chosen->arguments[evaluation->count];
    struct candidate *candidate = &evaluation->candidates[evaluation->count++];
    snprintf(candidate->name, sizeof candidate->name, "%.*s", (int)strcspn(text, "="), text);
    candidate->arguments = arguments->at;
    candidate->is_remote = true;
    enum err err = tune_arguments_add(arguments, "upstream", text, error);
    return err == OK ? add_common(arguments, candidate->name, &chosen->prices, error) : err;
}

static enum err add_all(struct evaluate_command *chosen, struct error *error) {
    enum err err = OK;
    for (size_t i = 0; i < chosen->node.model_count && err == OK; i++)
        err = add_model(chosen, &chosen->node.models[i], error);
    for (size_t i = 0; i < chosen->choice.upstreams.count && err == OK; i++)
        err = add_upstream(chosen, chosen->choice.upstreams.values[i], error);
    if (err == OK && chosen->cascade)
        err = evaluation_add_cascade(&chosen->evaluation, chosen->cascade,
                                     chosen->until >= 0 ? chosen->until : UNTIL_USUAL, error);
    return err;
}

/* --- the command --- */

static void show_phase(void *context, const char *what) {
    terminal_draw(context, what);
}

static void show_warning(void *context, const char *name, const char *warning) {
    terminal_end(context);
    fprintf(stderr, "quern evaluate: %s: %s\n", name, printable(warning).text);
}

typedef void (*write_fn)(struct buf *out, const struct evaluation *evaluation);

static enum err keep(const struct evaluation *evaluation, const char *name, write_fn write,
                     struct error *error) {
    char path[PATH_MAX], part[PATH_MAX + 8];
    struct buf out;
    buf_init(&out, BUF_UNLIMITED);
    write(&out, evaluation);
    snprintf(path, sizeof path, "%.4000s/%s", evaluation->folder, name);
    snprintf(part, sizeof part, "%s.part", path);
    enum err err = os_write_file(part, 0644, out.at, out.bytes, error);
    buf_release(&out);
    if (err == OK) err = whole_file_place(part, path, true, error);
    return err == OK ? OK : err_prefix(error, "%s", name);
}

static void show(const struct evaluate_command *chosen) {
    struct buf out;
    if (!chosen->json) {
        evaluate_show_table(&chosen->evaluation);
        return;
    }
    buf_init(&out, BUF_UNLIMITED);
    evaluation_json_write(&out, &chosen->evaluation);
    fwrite(out.at, 1, out.bytes, stdout);
    buf_release(&out);
}

/* Reads the judgements of a project of Label Studio as they are now; nothing else keeps them. */
static enum err open_studio(struct evaluate_command *chosen, const volatile bool *stop, int *ret_fd,
                            char ret_path[32], struct error *error) {
    const struct history_wish wish = {.project = studio_source_project(chosen->reference),
                                      .id_field = chosen->id_field};
    if (wish.project == 0) return OK;
    enum err err = studio_source_open(&wish, stop, ret_fd, error);
    if (err != OK) return err_prefix(error, "--compare-to %s", chosen->reference);
    snprintf(ret_path, 32, "/proc/self/fd/%d", *ret_fd);
    chosen->evaluation.judged.from = ret_path;
    return OK;
}

static enum err run(struct command_call *call, struct error *error) {
    struct evaluate_command *chosen = call->chosen;
    struct evaluation *evaluation = &chosen->evaluation;
    struct terminal terminal;
    enum err err = engine_options_find_models(&chosen->choice, &chosen->node, call->stop, error);
    if (err == OK) err = add_all(chosen, error);
    if (err != OK) return err;
    if (!chosen->choice.log_level) log_set_level(LOG_ERROR);
    terminal_init(&terminal);
    evaluation->input = call->operands[0];
    evaluation->folder = chosen->folder ? chosen->folder : chosen->folder_usual;
    evaluation->sample = (uint64_t)chosen->sample;
    evaluation->reference = chosen->reference;
    evaluation->top = (size_t)chosen->top;
    evaluation->top_k = (uint64_t)chosen->top_k;
    evaluation->by = chosen->by;
    evaluation->judged = (struct judged){.answers = chosen->judged_results,
                                         .field = chosen->judgement_field,
                                         .columns = chosen->columns.values,
                                         .column_count = chosen->columns.count};
    evaluation->tuning = (struct tuning){.is_wanted = chosen->tune,
                                         .knobs = chosen->knobs.values,
                                         .knob_count = chosen->knobs.count,
                                         .lines = (uint32_t)chosen->tune_lines,
                                         .rounds = (size_t)chosen->tune_rounds,
                                         .seconds = (double)chosen->tune_seconds};
    evaluation->stop = call->stop;
    evaluation->context = &terminal;
    evaluation->say = show_phase;
    evaluation->warned = show_warning;
    int judged_fd = -1;
    char judged_path[32];
    err = open_studio(chosen, call->stop, &judged_fd, judged_path, error);
    if (err == OK) err = evaluation_run(evaluation, error);
    os_close(judged_fd);
    terminal_clear(&terminal);
    if (err == ERR_CANCELLED)
        fprintf(stderr, "quern evaluate: the same command goes on from here\n");
    if (err == OK) err = keep(evaluation, "evaluation.json", evaluation_json_write, error);
    if (err == OK) err = keep(evaluation, "report.html", evaluation_page_write, error);
    if (err == OK) show(chosen);
    return err;
}

static const struct option_table tables[] = {
    {rows, 0}, PRICE_TABLES(AT(prices)), {engine_option_rows, AT(choice)}, {vllm_option_rows, 0}};

const struct command cmd_evaluate = {
    .name = "evaluate",
    .summary = "run the same requests through several models, and compare them",
    .usage = "evaluate FILE --model A --model B [--upstream MODEL=URL] [--cascade A,B] [options]",
    .help =
        "Runs the requests of FILE, or a sample of them, through each model and reports speed,\n"
        "time and cost of whole jobs, valid answers, the agreement of each pair, and the rows\n"
        "that differ most, as a table, a page and JSON. Goes on where it was interrupted.\n"
        "--tune adds what each setting does to the chosen one.\n"
        "With --cascade a dear model gets only what a cheap one is unsure of; with --top-k only "
        "the\n"
        "best requests are computed whole.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct evaluate_command),
    .operands_max = 1,
    .has_settings = true,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
