/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/preflight_show.h"
#include "cli/price_options.h"
#include "cli/stop.h"
#include "cli/terminal.h"
#include "cli/vllm_options.h"
#include "preflight/preflight.h"
#include "preflight/preflight_child.h"

#include <stdio.h>

struct preflight_command {
    struct preflight_options preflight;
    struct engine_choice choice;
    int64_t sample_lines;
    const char *profile, *endpoint;
    bool json;
    bool ends_with_parent;
};

#define AT(field) offsetof(struct preflight_command, field)
static const struct option rows[] = {
    {"json", OPTION_SWITCH, AT(json), .help = "print one JSON object"},
    {"pilot", OPTION_INTEGER, AT(sample_lines), "N",
     .help = "requests to run as a sample, for the time (default 48; 0 runs none)",
     .max = SAMPLE_RUN_LINES_MAX},
    {"profile", OPTION_TEXT, AT(profile), "NAME",
     .help = "limits and strictness to check by: quern or openai (default quern)",
     .words = "quern|openai"},
    {"endpoint", OPTION_TEXT, AT(endpoint), "PATH",
     .help = "endpoint of the batch (default: the url of the first line)"},
    {"any-model", OPTION_SWITCH, AT(preflight.any_model),
     .help = "count lines whatever model they name"},
    {"needs-model", OPTION_SWITCH, AT(preflight.needs_model),
     .help = "refuse lines that name no model, as a server of several models does"},
    {"end-with-parent", OPTION_SWITCH, AT(ends_with_parent),
     .help = "stop when the process that started this one ends", .only_flag = true},
    {0},
};

/* The server reads these statuses of its children. */
_Static_assert((int)PREFLIGHT_CHILD_REFUSES_LINES == (int)EXIT_FAILED &&
                   (int)PREFLIGHT_CHILD_USAGE == (int)EXIT_USAGE &&
                   (int)PREFLIGHT_CHILD_UNUSABLE == (int)EXIT_UNUSABLE &&
                   (int)PREFLIGHT_CHILD_NOT_FOUND == (int)EXIT_NOT_FOUND,
               "preflight_child.h has the numbers of exit_status.h");

static void show_phase(void *context, const char *phase) {
    char line[64];
    snprintf(line, sizeof line, "%s ...", phase);
    terminal_draw(context, line);
}

static void set_defaults(void *context) {
    struct preflight_command *chosen = context;
    engine_options_set_defaults(&chosen->choice);
    prices_init(&chosen->preflight.prices);
    chosen->sample_lines = 48;
    chosen->profile = "quern";
}

static void release(void *context) {
    struct preflight_command *chosen = context;
    engine_options_release(&chosen->choice, &chosen->preflight.node);
}

static enum err read_rules(struct preflight_command *chosen, struct error *error) {
    struct preflight_options *preflight = &chosen->preflight;
    preflight->endpoint = ENDPOINT_COUNT;
    if (!batch_rules_of_profile(chosen->profile, &preflight->rules))
        return err_set(error, ERR_INVALID, "--profile: '%s' is not 'quern' or 'openai'",
                       chosen->profile);
    if (chosen->endpoint && !endpoint_find(str_from(chosen->endpoint), &preflight->endpoint))
        return err_set(error, ERR_INVALID, "--endpoint: '%s' is no endpoint of a batch",
                       chosen->endpoint);
    return OK;
}

static enum err check(struct command_call *call, struct error *error) {
    struct preflight_command *chosen = call->chosen;
    chosen->preflight.path = call->operands[0];
    if (!chosen->preflight.path) return err_set(error, ERR_INVALID, "FILE is missing");
    enum err err = engine_options_check(&chosen->choice, &chosen->preflight.node, error);
    if (err == OK && chosen->choice.models.count + chosen->choice.upstreams.count != 1)
        err = err_set(error, ERR_INVALID, "one --model or one --upstream, please");
    return err == OK ? read_rules(chosen, error) : err;
}

static enum err run(struct command_call *call, struct error *error) {
    struct preflight_command *chosen = call->chosen;
    struct preflight_options *options = &chosen->preflight;
    struct preflight preflight = {0};
    struct terminal terminal;
    terminal_init(&terminal);
    if (chosen->ends_with_parent) stop_with_parent();
    enum err err = engine_options_find_models(&chosen->choice, &options->node, call->stop, error);
    if (err != OK) return err;
    if (!chosen->choice.log_level) log_set_level(LOG_ERROR);
    options->sample_lines = (uint32_t)chosen->sample_lines;
    options->stop = call->stop;
    options->say = show_phase;
    options->context = &terminal;
    err = preflight_run(options, &preflight, error);
    terminal_clear(&terminal);
    if (err != OK) return err;
    if (chosen->json)
        preflight_show_json(&preflight, &options->prices);
    else
        preflight_show(&preflight, options->path, &options->prices);
    if (preflight.faulty > 0 || *preflight.file_fault.code) call->status = EXIT_FAILED;
    return OK;
}

static const struct option_table tables[] = {
    {rows, 0},
    PRICE_TABLES(AT(preflight.prices)),
    {engine_option_rows, offsetof(struct preflight_command, choice)},
    {vllm_option_rows, 0}};

const struct command cmd_preflight = {
    .name = "preflight",
    .summary = "report what running a file will take, before it runs",
    .usage = "preflight FILE --model M [options]",
    .help =
        "Reads a file of requests as the engine would and reports what running it takes: exact\n"
        "tokens, lengths, requests that do not fit, shared text, and, from a sample that it\n"
        "runs, time and cost.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct preflight_command),
    .operands_max = 1,
    .has_settings = true,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
