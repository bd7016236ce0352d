/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/os.h"
#include "base/printable.h"
#include "batch/batch_costs.h"
#include "batch/shape_ends.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/price_options.h"
#include "cli/run_show.h"
#include "cli/table_options.h"
#include "cli/vllm_options.h"
#include "server/offline.h"
#include "server/offline_places.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

struct chosen {
    struct offline_options offline;
    struct offline_places places;
    const char *input, *output, *output_folder;
    struct engine_choice choice;
    struct table_choice table;
    struct prices prices;
    bool json, quiet;
};

#define AT(field) offsetof(struct chosen, field)
static const struct option rows[] = {
    {"input-file", OPTION_TEXT, AT(input), "IN",
     .help =
         "file of requests, one JSON object per line, or with --prompt a table; or an http(s) URL "
         "to GET; or - for standard input",
     .letter = 'i', .only_flag = true},
    {"output-file", OPTION_TEXT, AT(output), "OUT",
     .help = "file of results, one line per request, in input order, or a table (.csv, .tsv, "
             ".parquet); or an "
             "http(s) URL to PUT to; or - for standard output",
     .letter = 'o', .only_flag = true},
    {"overwrite", OPTION_SWITCH, AT(offline.overwrite),
     .help = "run although OUT exists, and replace it", .only_flag = true},
    {"output-tmp-dir", OPTION_TEXT, AT(output_folder), "DIR",
     .help = "folder of the results of an OUT that is a URL, until they are sent (default: .)"},
    {"json", OPTION_SWITCH, AT(json), .help = "print the summary as one JSON object"},
    {"quiet", OPTION_SWITCH, AT(quiet), .help = "show no progress", .letter = 'q'},
    {0},
};

/* This process and its largest child; the engine has ended by now. */
static uint64_t peak_rss_bytes(void) {
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    return os_peak_rss_bytes() + (uint64_t)children.ru_maxrss * 1024;
}

static bool is_url(const char *name) {
    return strncmp(name, "http://", 7) == 0 || strncmp(name, "https://", 8) == 0;
}

/* "Shapes: 97 of 100 answers valid (97.0 %), 2 truncated, …": the words of the batch object. The
 * last three are told only where they occurred. */
static void print_shapes(const uint64_t ends[SHAPE_END_COUNT]) {
    uint64_t asked = 0;
    for (size_t i = 0; i < SHAPE_END_COUNT; i++) asked += ends[i];
    if (asked == 0) return;
    fprintf(stderr,
            "Shapes: %" PRIu64 " of %" PRIu64 " answers valid (%.1f %%), %" PRIu64
            " truncated, 0 repaired, %" PRIu64 " refused",
            ends[SHAPE_VALID], asked, 100 * (double)ends[SHAPE_VALID] / (double)asked,
            ends[SHAPE_TRUNCATED], ends[SHAPE_REFUSED]);
    static const enum shape_end others[] = {SHAPE_MISMATCHED, SHAPE_UNCHECKED, SHAPE_FAILED};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (ends[others[i]] > 0)
            fprintf(stderr, ", %" PRIu64 " %s", ends[others[i]], shape_end_names[others[i]]);
    fprintf(stderr, "\n");
}

/* A run in several calls has no time as a whole: its time and energy are not told. */
static struct cost_job job_of(const struct offline_summary *is) {
    bool is_whole = is->done_before == 0;
    struct cost_job job = batch_cost_job(&is->usage, is_whole ? is->seconds : 0, is->load_seconds);
    if (is_whole) job.measured_watts = is->watts;
    return job;
}

static void print_costs(const struct offline_summary *is, const struct prices *prices) {
    struct cost_job job = job_of(is);
    struct costs costs;
    struct buf text;
    costs_count(&job, prices, &costs);
    buf_init(&text, 1 << 16);
    costs_write_text(&text, &job, prices, &costs);
    if (text.bytes > 0) fputs(text.at, stderr);
    buf_release(&text);
}

static void print_summary(const struct offline_summary *is, bool json, const char *name,
                          const struct prices *prices) {
    /* The query of a URL may be a secret. */
    char output[PATH_MAX];
    snprintf(output, sizeof output, "%.*s", (int)strcspn(name, is_url(name) ? "?#" : ""),
             strcmp(name, "-") == 0 ? "standard output" : name);
    uint64_t now = is->completed + is->failed - is->done_before;
    double rate = is->seconds > 0 ? (double)now / is->seconds : 0;
    char part[64] = "";
    if (is->was_finished) {
        fprintf(stderr,
                "%s has all results of this input already, %llu of them failed; nothing is left to "
                "do (--overwrite runs it again)\n",
                printable(output).text, (unsigned long long)is->failed);
        if (json) printf("{\"was_finished\": true, \"failed\": %" PRIu64 "}\n", is->failed);
        return;
    }
    if (!json) {
        if (is->done_before > 0)
            snprintf(part, sizeof part, ", %" PRIu64 " of them in this run", now);
        fprintf(stderr,
                "%llu of %llu requests completed, %llu failed%s, in %.1f s (%.2f req/s, %.0f "
                "tokens/s out); %s\n",
                (unsigned long long)is->completed, (unsigned long long)is->requests,
                (unsigned long long)is->failed, part, is->seconds, rate,
                is->seconds > 0 ? (double)is->output_tokens_now / is->seconds : 0,
                printable(output).text);
        if (is->rest_lines > 0)
            fprintf(stderr,
                    "%" PRIu64 " results have more than the table shows; they stand whole "
                    "in " TABLE_REST "\n",
                    is->rest_lines, printable(output).text);
        print_shapes(is->shapes);
        print_costs(is, prices);
        return;
    }
    struct buf shapes, told;
    struct cost_job job = job_of(is);
    struct costs costs;
    buf_init(&shapes, 4096);
    shape_ends_write(&shapes, is->shapes);
    costs_count(&job, prices, &costs);
    buf_init(&told, 1 << 16);
    costs_write_json(&told, &job, prices, &costs);
    printf("{\"requests\": %llu, \"completed\": %llu, \"failed\": %llu, \"seconds\": %.3f, "
           "\"load_seconds\": %.3f, "
           "\"req_s\": %.3f, \"prompt_tokens\": %llu, \"cached_tokens\": %llu, "
           "\"completion_tokens\": %llu, "
           "\"peak_rss_bytes\": %llu, \"done_before\": %llu, \"rest\": %llu, \"shapes\": %s, "
           "\"costs\": %s}\n",
           (unsigned long long)is->requests, (unsigned long long)is->completed,
           (unsigned long long)is->failed, is->seconds, is->load_seconds, rate,
           (unsigned long long)is->usage.input_tokens, (unsigned long long)is->usage.cached_tokens,
           (unsigned long long)is->usage.output_tokens, (unsigned long long)peak_rss_bytes(),
           (unsigned long long)is->done_before, (unsigned long long)is->rest_lines, shapes.at,
           told.at);
    buf_release(&told);
    buf_release(&shapes);
}

static void set_defaults(void *context) {
    struct chosen *chosen = context;
    engine_options_set_defaults(&chosen->choice);
    prices_init(&chosen->prices);
    chosen->offline.node.watches_cards = true;
}

static void release(void *context) {
    struct chosen *chosen = context;
    engine_options_release(&chosen->choice, &chosen->offline.node);
    table_options_release(&chosen->table);
}

static enum err check(struct command_call *call, struct error *error) {
    struct chosen *chosen = call->chosen;
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
    chosen->offline.input.path = chosen->places.input_path;
    chosen->offline.output_path = chosen->places.output_path;
    return engine_options_check(&chosen->choice, &chosen->offline.node, error);
}

/* Finishes a run whose results are all in the local output. */
static enum err deliver(struct command_call *call, const struct offline_summary *summary,
                        struct error *error) {
    struct chosen *chosen = call->chosen;
    enum err err = offline_places_send(&chosen->places, call->stop, error);
    if (err != OK) {
        fprintf(stderr, "quern run: all results are in %s; the same command sends them again\n",
                printable(chosen->places.output_path).text);
        return err;
    }
    print_summary(summary, chosen->json, chosen->output, &chosen->prices);
    if (summary->failed > 0) call->status = EXIT_FAILED;
    return OK;
}

static enum err run_file(struct command_call *call, struct error *error) {
    struct chosen *chosen = call->chosen;
    struct run_show show = {.quiet = chosen->quiet, .has_rows = chosen->table.plan != NULL};
    struct offline_options *offline = &chosen->offline;
    struct offline_summary summary = {0};
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
    struct chosen *chosen = call->chosen;
    enum err err =
        table_options_open(&chosen->table, chosen->output, &chosen->offline.input, error);
    if (err == OK) err = offline_places_fetch(&chosen->places, call->stop, error);
    if (err != OK) return err;
    err = run_file(call, error);
    if (err != OK) offline_places_drop(&chosen->places);
    return err;
}

static const struct option_table tables[] = {{rows, 0},
                                             {table_option_rows, offsetof(struct chosen, table)},
                                             PRICE_TABLES(offsetof(struct chosen, prices)),
                                             {engine_option_rows, offsetof(struct chosen, choice)},
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
    .chosen_bytes = sizeof(struct chosen),
    .has_settings = true,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
