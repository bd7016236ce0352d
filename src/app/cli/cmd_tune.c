/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/price_options.h"
#include "cli/terminal.h"
#include "cli/tune_arguments.h"
#include "cli/tune_show.h"
#include "cli/vllm_options.h"
#include "node/folder.h"
#include "tune/knobs.h"
#include "tune/sample.h"
#include "tune/tune_json.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINES_MAX 10000
#define VALUE_BYTES 24

struct tune_command {
    struct engine_choice choice;
    struct node_options node; /* only its models are used */
    struct prices prices;     /* only watts are used */
    struct option_list knobs;
    int64_t lines, rounds, seconds;
    bool json;
};

#define AT(field) offsetof(struct tune_command, field)
static const struct option rows[] = {
    {"lines", OPTION_INTEGER, AT(lines), "N",
     .help = "requests of each trial, from the beginning of FILE (default 64)", .min = 1,
     .max = LINES_MAX, .only_flag = true},
    {"rounds", OPTION_INTEGER, AT(rounds), "N", .help = "trials of each setting (default 3)",
     .min = 1, .max = TUNE_ROUNDS_MAX, .only_flag = true},
    {"seconds", OPTION_INTEGER, AT(seconds), "N",
     .help = "time after which no trial begins (default 900 s)", .min = 1, .max = 604800,
     .only_flag = true},
    {"knob", OPTION_LIST, AT(knobs), "NAME",
     .help = "option to try; repeatable (default: all seven)", .words = KNOB_WORDS,
     .only_flag = true},
    {"json", OPTION_SWITCH, AT(json), .help = "print one JSON object", .only_flag = true},
    {0},
};
static const struct option watts_row[] = {
    {"watts", OPTION_NUMBER, offsetof(struct prices, watts), "W",
     .help = "power of this machine at work, in watts (default: what its counters report)",
     .max = 1e6},
    {0},
};

/* --- the command --- */

static void set_defaults(void *context) {
    struct tune_command *chosen = context;
    engine_options_set_defaults(&chosen->choice);
    prices_init(&chosen->prices);
    chosen->lines = 64;
    chosen->rounds = 3;
    chosen->seconds = 900;
}

static void release(void *context) {
    struct tune_command *chosen = context;
    engine_options_release(&chosen->choice, &chosen->node);
}

static enum err check(struct command_call *call, struct error *error) {
    struct tune_command *chosen = call->chosen;
    if (!call->operands[0]) return err_set(error, ERR_INVALID, "FILE is missing");
    for (size_t i = 0; i < chosen->knobs.count; i++)
        if (!knobs_has(chosen->knobs.values[i]))
            return err_set(error, ERR_INVALID, "--knob: '%.60s' is none of the seven; see --help",
                           chosen->knobs.values[i]);
    enum err err = engine_options_check(&chosen->choice, &chosen->node, error);
    if (err == OK && (chosen->choice.models.count != 1 || chosen->choice.upstreams.count > 0))
        err = err_set(error, ERR_INVALID, "one --model, please, which runs here");
    return err;
}

static void show_phase(void *context, const char *what) {
    char line[160];
    snprintf(line, sizeof line, "trying %s ...", what);
    terminal_draw(context, line);
}

static void show_json(const struct tune_figures *figures) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    tune_json_write(&text, figures);
    buf_add_byte(&text, '\n');
    fwrite(text.at, 1, text.bytes, stdout);
    buf_release(&text);
}

static enum err try_all(struct command_call *call, const struct tune_arguments *today,
                        const char *folder, struct error *error) {
    const struct tune_command *chosen = call->chosen;
    static struct knob_settings tried;
    static struct tune_baseline baseline;
    struct terminal terminal;
    char sample[PATH_MAX];
    struct tune_figures shown = {
        .path = call->operands[0], .baseline = &baseline, .settings = tried.at};
    snprintf(sample, sizeof sample, "%.4000s/sample.jsonl", folder);
    enum err err =
        sample_write(call->operands[0], (uint32_t)chosen->lines, sample, &shown.lines, error);
    if (err != OK) return err;
    knobs_list(&tried, chosen->knobs.values, chosen->knobs.count, today->at);
    terminal_init(&terminal);
    const struct tune_options options = {
        .place = {.folder = folder, .sample = sample, .stop = call->stop},
        .base = today->at,
        .rounds = (size_t)chosen->rounds,
        .seconds = (double)chosen->seconds,
        .context = &terminal,
        .say = show_phase};
    err = tune_run(&options, tried.at, tried.count, &baseline, error);
    terminal_clear(&terminal);
    if (err != OK) return err;
    shown.count = tried.count;
    if (chosen->json)
        show_json(&shown);
    else
        tune_show_table(&shown);
    return OK;
}

static enum err run(struct command_call *call, struct error *error) {
    struct tune_command *chosen = call->chosen;
    struct tune_arguments today;
    char folder[PATH_MAX], watts[VALUE_BYTES];
    const char *parent = getenv("TMPDIR");
    enum err err = engine_options_find_models(&chosen->choice, &chosen->node, call->stop, error);
    if (err != OK) return err;
    if (!chosen->choice.log_level) log_set_level(LOG_ERROR);
    snprintf(folder, sizeof folder, "%.2000s/quern-tune-XXXXXX", parent ? parent : "/tmp");
    if (!mkdtemp(folder)) return err_set(error, ERR_IO, "cannot make %s", folder);
    err = tune_arguments_fill(&today, &chosen->choice, &chosen->node.models[0], error);
    if (err == OK && price_is_given(chosen->prices.watts)) {
        snprintf(watts, sizeof watts, "%.6g", chosen->prices.watts);
        err = tune_arguments_add(&today, "watts", watts, error);
    }
    if (err == OK) err = try_all(call, &today, folder, error);
    tune_arguments_release(&today);
    folder_remove(folder);
    return err;
}

static const struct option_table tables[] = {
    {rows, 0}, {watts_row, AT(prices)}, {engine_option_rows, AT(choice)}, {vllm_option_rows, 0}};

const struct command cmd_tune = {
    .name = "tune",
    .summary = "measure what each setting does to a file of your own",
    .usage = "tune FILE --model M [options]",
    .help = "Runs the first requests of FILE with today's options and with one option changed at\n"
            "a time, in turn, and reports requests per second, energy and equal answers of each.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct tune_command),
    .operands_max = 1,
    .has_settings = true,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
