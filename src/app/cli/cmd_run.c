/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/manifest_options.h"
#include "cli/price_options.h"
#include "cli/run_show.h"
#include "cli/run_summary.h"
#include "cli/stop.h"
#include "cli/table_options.h"
#include "cli/vllm_options.h"
#include "proof/manifest.h"
#include "s3/s3.h"
#include "server/offline.h"
#include "server/offline_places.h"

#include <stdio.h>
#include <string.h>

struct run_command {
    struct offline_options offline;
    struct offline_places places;
    const char *input, *output, *output_folder;
    struct engine_choice choice;
    struct table_choice table;
    struct prices prices;
    const char *manifest, *signing_key;
    bool json, quiet, ends_with_parent;
    char manifest_usual[PATH_MAX], signing_key_usual[PATH_MAX];
    json_t *settings; /* owned; the manifest has them */
};

#define AT(field) offsetof(struct run_command, field)
static const struct option rows[] = {
    {"input-file", OPTION_TEXT, AT(input), "IN",
     .help =
         "file of requests, one JSON object per line, or with --prompt a table; or an http(s) URL "
         "to GET, or an s3://BUCKET/KEY; or - for standard input",
     .letter = 'i', .only_flag = true},
    {"output-file", OPTION_TEXT, AT(output), "OUT",
     .help = "file of results, one line per request, in input order, or a table (.csv, .tsv, "
             ".parquet); or an "
             "http(s) URL to PUT to, or an s3://BUCKET/KEY; or - for standard output",
     .letter = 'o', .only_flag = true},
    {"overwrite", OPTION_SWITCH, AT(offline.overwrite),
     .help = "run although OUT exists, and replace it", .only_flag = true},
    {"output-tmp-dir", OPTION_TEXT, AT(output_folder), "DIR",
     .help = "folder of the results of an OUT that is a URL or in S3, until they are sent "
             "(default: .)"},
    {"manifest", OPTION_TEXT, AT(manifest), "FILE",
     .help = "file of the run's signed manifest (default OUT.manifest.json, none if OUT is no "
             "file; '': none)",
     .only_flag = true},
    {"signing-key", OPTION_TEXT, AT(signing_key), "FILE",
     .help = "Ed25519 key that signs it (default: signing_key in the state directory of `quern "
             "serve`, which is made if it does not exist; '': none)"},
    {"json", OPTION_SWITCH, AT(json), .help = "print the summary as one JSON object"},
    {"quiet", OPTION_SWITCH, AT(quiet), .help = "show no progress", .letter = 'q'},
    {"end-with-parent", OPTION_SWITCH, AT(ends_with_parent),
     .help = "stop when the process that started this one ends", .only_flag = true},
    {0},
};

static void set_defaults(void *context) {
    struct run_command *chosen = context;
    engine_options_set_defaults(&chosen->choice);
    prices_init(&chosen->prices);
    chosen->offline.node.watches_cards = true;
}

static void release(void *context) {
    struct run_command *chosen = context;
    engine_options_release(&chosen->choice, &chosen->offline.node);
    table_options_release(&chosen->table);
    json_decref(chosen->settings);
}

/* Where the manifest goes, and who signs it. */
static enum err choose_manifest(struct run_command *chosen, struct error *error) {
    struct offline_proof *proof = &chosen->offline.proof;
    bool is_file = strcmp(chosen->places.output_path, chosen->output) == 0;
    proof->path = chosen->manifest;
    if (!proof->path && is_file) {
        if (snprintf(chosen->manifest_usual, PATH_MAX, MANIFEST_NAME, chosen->output) >= PATH_MAX)
            return err_set(error, ERR_INVALID, "the name of the output file is too long");
        proof->path = chosen->manifest_usual;
    }
    if (proof->path && !*proof->path) proof->path = NULL;
    manifest_key_usual(chosen->signing_key_usual);
    proof->key = chosen->signing_key ? chosen->signing_key : chosen->signing_key_usual;
    proof->input = chosen->input;
    proof->settings = chosen->settings = manifest_settings(&chosen->choice);
    return OK;
}

static enum err check(struct command_call *call, struct error *error) {
    struct run_command *chosen = call->chosen;
    if (!chosen->input || !chosen->output)
        return err_set(error, ERR_INVALID, "%s is missing", chosen->input ? "-o OUT" : "-i IN");
    if (chosen->json && strcmp(chosen->output, "-") == 0)
        return err_set(error, ERR_INVALID, "--json and -o - both print on standard output");
    if (chosen->table.table.prompt && strcmp(chosen->input, "-") == 0)
        return err_set(error, ERR_INVALID,
                       "--prompt: the name of standard input does not show the kind of its table; "
                       "give it as a file (.csv, .tsv, .jsonl, .parquet)");
    enum err err = table_options_check(&chosen->table, chosen->input, chosen->output, error);
    if (err != OK) return err;
    err = offline_places_find(&chosen->places, chosen->input, chosen->output, chosen->output_folder,
                              error);
    if (err != OK) return err;
    chosen->places.may_replace = chosen->offline.overwrite;
    chosen->offline.input.path = chosen->places.input_path;
    chosen->offline.output_path = chosen->places.output_path;
    err = engine_options_check(&chosen->choice, &chosen->offline.node, error);
    return err == OK ? choose_manifest(chosen, error) : err;
}

/* Finishes a run whose results are all in the local output. */
static enum err deliver(struct command_call *call, const struct offline_summary *summary,
                        struct error *error) {
    struct run_command *chosen = call->chosen;
    enum err err = offline_places_send(&chosen->places, call->stop, error);
    if (err != OK) {
        fprintf(stderr, "quern run: all results are in %s; the same command sends them again\n",
                printable(chosen->places.output_path).text);
        return err;
    }
    const char *table = s3_is_place(chosen->output) ? chosen->output : chosen->places.output_path;
    run_summary_print(summary, chosen->json, chosen->output, table, &chosen->prices);
    if (summary->failed > 0) call->status = EXIT_FAILED;
    return OK;
}

/* Whether the results lie here, and only their sending failed. --overwrite is about what lies at
 * the other side, not about them. */
static bool waits_for_sending(const struct run_command *chosen,
                              struct offline_summary *ret_summary) {
    struct offline_options kept = chosen->offline;
    struct error ignored;
    kept.overwrite = false;
    return strcmp(chosen->places.output_path, chosen->output) != 0 &&
           offline_check(&kept, ret_summary, &ignored) == OK && ret_summary->was_finished;
}

static enum err run_file(struct command_call *call, struct error *error) {
    struct run_command *chosen = call->chosen;
    struct run_show show = {.quiet = chosen->quiet, .has_rows = chosen->table.plan != NULL};
    struct offline_options *offline = &chosen->offline;
    struct offline_summary summary = {0};
    if (waits_for_sending(chosen, &summary)) return deliver(call, &summary, error);
    enum err err = offline_check(offline, &summary, error);
    if (err != OK) return err;
    if (summary.was_finished) return deliver(call, &summary, error);
    err = engine_options_find_models(&chosen->choice, &offline->node, call->stop, error);
    if (err != OK) return err;
    if (!chosen->choice.log_level) log_set_level(LOG_WARN);
    terminal_init(&show.terminal);
    offline->stop = call->stop;
    offline->context = &show;
    offline->progress = run_show_progress;
    offline->bad_line = run_show_bad_line;
    err = offline_run(offline, &summary, error);
    run_show_end(&show);
    return err == OK ? deliver(call, &summary, error) : err;
}

static enum err run(struct command_call *call, struct error *error) {
    struct run_command *chosen = call->chosen;
    if (chosen->ends_with_parent) stop_with_parent();
    enum err err =
        table_options_open(&chosen->table, chosen->output, &chosen->offline.input, error);
    if (err == OK) err = offline_places_fetch(&chosen->places, call->stop, error);
    if (err != OK) return err;
    err = run_file(call, error);
    if (err != OK) offline_places_drop(&chosen->places);
    return err;
}

static const struct option_table tables[] = {
    {rows, 0},
    {table_option_rows, offsetof(struct run_command, table)},
    PRICE_TABLES(offsetof(struct run_command, prices)),
    {engine_option_rows, offsetof(struct run_command, choice)},
    {vllm_option_rows, 0}};

const struct command cmd_run = {
    .name = "run",
    .summary = "turn a file of requests, or a table, into a file of results",
    .usage = "run -i IN.jsonl -o OUT.jsonl --model M [options]\n"
             "       quern run -i IN.csv --prompt F.jinja -o OUT.csv --model M [options]",
    .help =
        "Runs every request of IN and writes one result per line to OUT. Finished results are\n"
        "kept in OUT.quern; after an interruption the same command continues. IN may be a table:\n"
        "--prompt makes a request of each row; and OUT may be one, with a column per answer.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct run_command),
    .has_settings = true,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
