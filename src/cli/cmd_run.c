/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/os.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/progress_line.h"
#include "server/offline.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define LINE_EVERY_S 10.0
#define BAD_LINES_SHOWN 20

struct show {
    bool quiet, terminal, drawn;
    double line_at_s; /* time of the last printed line */
    uint64_t bad_lines;
};

struct chosen {
    struct offline_options offline;
    struct engine_choice choice;
    bool json, quiet;
};

#define AT(field) offsetof(struct chosen, field)
static const struct option rows[] = {
    {"input-file", OPTION_TEXT, AT(offline.input_path), "IN",
     .help = "file of requests, one JSON object per line", .letter = 'i', .only_flag = true},
    {"output-file", OPTION_TEXT, AT(offline.output_path), "OUT",
     .help = "file of results, one line per request, in input order", .letter = 'o',
     .only_flag = true},
    {"overwrite", OPTION_SWITCH, AT(offline.overwrite),
     .help = "run although OUT exists, and replace it", .only_flag = true},
    {"json", OPTION_SWITCH, AT(json), .help = "print the summary as one JSON object"},
    {"quiet", OPTION_SWITCH, AT(quiet), .help = "show no progress", .letter = 'q'},
    {0},
};

/* Options of vLLM's run-batch without a meaning here. */
static const struct option ignored_rows[] = {
    {"pipeline-parallel-size", OPTION_IGNORED, .value = "VALUE"},
    {"data-parallel-size", OPTION_IGNORED, .value = "VALUE"},
    {"swap-space", OPTION_IGNORED, .value = "VALUE"},
    {"seed", OPTION_IGNORED, .value = "VALUE"},
    {"tokenizer", OPTION_IGNORED, .value = "VALUE"},
    {"tokenizer-mode", OPTION_IGNORED, .value = "VALUE"},
    {"revision", OPTION_IGNORED, .value = "VALUE"},
    {"download-dir", OPTION_IGNORED, .value = "VALUE"},
    {"host", OPTION_IGNORED, .value = "VALUE"},
    {"port", OPTION_IGNORED, .value = "VALUE"},
    {"url", OPTION_IGNORED, .value = "VALUE"},
    {"output-tmp-dir", OPTION_IGNORED, .value = "VALUE"},
    {"max-log-len", OPTION_IGNORED, .value = "VALUE"},
    {"response-role", OPTION_IGNORED, .value = "VALUE"},
    {"max-logprobs", OPTION_IGNORED, .value = "VALUE"},
    {"cpu-offload-gb", OPTION_IGNORED, .value = "VALUE"},
    {"reasoning-parser", OPTION_IGNORED, .value = "VALUE"},
    {"generation-config", OPTION_IGNORED, .value = "VALUE"},
    {"enforce-eager", OPTION_IGNORED_SWITCH, .value = NULL},
    {"trust-remote-code", OPTION_IGNORED_SWITCH, .value = NULL},
    {"disable-log-stats", OPTION_IGNORED_SWITCH, .value = NULL},
    {"disable-log-requests", OPTION_IGNORED_SWITCH, .value = NULL},
    {"enable-metrics", OPTION_IGNORED_SWITCH, .value = NULL},
    {"enable-prompt-tokens-details", OPTION_IGNORED_SWITCH, .value = NULL},
    {"enable-chunked-prefill", OPTION_IGNORED_SWITCH, .value = NULL},
    {"async-scheduling", OPTION_IGNORED_SWITCH, .value = NULL},
    {0},
};

/* An estimate of the remaining time, or -1 for a tenth of the lines: the first answers end
 * together, so their rate tells little about the others. */
static double seconds_left(const struct store_batch *batch, uint64_t done, uint64_t done_now,
                           double rate) {
    uint64_t enough = batch->total / 10 > 0 ? batch->total / 10 : 1;
    return done_now >= enough && rate > 0 ? (double)(batch->total - done) / rate : -1;
}

/* Columns of the terminal, asked each time: it may be resized. */
static size_t terminal_width(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79;
}

static void show_progress(void *context, const struct offline_progress *progress) {
    struct show *show = context;
    const struct store_batch *batch = progress->batch;
    uint64_t done = batch->completed + batch->failed, done_now = done - progress->done_before;
    if (show->quiet) return;
    if (progress->engine || batch->total == 0) {
        if (show->terminal)
            fprintf(stderr, "\r\033[K%s",
                    progress->engine ? "loading the model" : "checking the requests");
        show->drawn = show->terminal;
        return;
    }
    if (!show->terminal && progress->seconds - show->line_at_s < LINE_EVERY_S) return;
    show->line_at_s = progress->seconds;
    double seconds = progress->seconds > 0 ? progress->seconds : INFINITY;
    double rate = (double)done_now / seconds;
    const struct progress_facts facts = {
        .total = batch->total,
        .done = done,
        .failed = batch->failed,
        .running = progress->running,
        .prompt_tokens = progress->prompt_tokens,
        .generated_tokens = progress->generated_tokens,
        .requests_per_s = rate,
        .tokens_per_s = (double)progress->generated_tokens / seconds,
        .seconds_left = seconds_left(batch, done, done_now, rate),
    };
    char line[PROGRESS_LINE_BYTES];
    progress_line(line, &facts, show->terminal ? terminal_width() : SIZE_MAX);
    fprintf(stderr, show->terminal ? "\r\033[K%s" : "%s\n", line);
    show->drawn = show->terminal;
}

static void show_bad_line(void *context, uint64_t number, const char *code, const char *message) {
    struct show *show = context;
    if (show->bad_lines++ >= BAD_LINES_SHOWN) return;
    if (number > 0)
        fprintf(stderr, "line %llu: %s: %s\n", (unsigned long long)number, code ? code : "",
                message ? message : "");
    else
        fprintf(stderr, "%s: %s\n", code ? code : "", message ? message : "");
}

/* This process and its largest child; the engine has ended by now. */
static uint64_t peak_rss_bytes(void) {
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    return os_peak_rss_bytes() + (uint64_t)children.ru_maxrss * 1024;
}

static void print_summary(const struct offline_summary *is, bool json, const char *output) {
    uint64_t now = is->completed + is->failed - is->done_before;
    double rate = is->seconds > 0 ? (double)now / is->seconds : 0;
    char part[64] = "";
    if (is->was_finished) {
        fprintf(stderr,
                "%s has all results of this input already, %llu of them failed; nothing is left to "
                "do (--overwrite runs it again)\n",
                output, (unsigned long long)is->failed);
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
                is->seconds > 0 ? (double)is->output_tokens_now / is->seconds : 0, output);
        return;
    }
    printf("{\"requests\": %llu, \"completed\": %llu, \"failed\": %llu, \"seconds\": %.3f, "
           "\"load_seconds\": %.3f, "
           "\"req_s\": %.3f, \"prompt_tokens\": %llu, \"cached_tokens\": %llu, "
           "\"completion_tokens\": %llu, "
           "\"peak_rss_bytes\": %llu, \"done_before\": %llu}\n",
           (unsigned long long)is->requests, (unsigned long long)is->completed,
           (unsigned long long)is->failed, is->seconds, is->load_seconds, rate,
           (unsigned long long)is->usage.input_tokens, (unsigned long long)is->usage.cached_tokens,
           (unsigned long long)is->usage.output_tokens, (unsigned long long)peak_rss_bytes(),
           (unsigned long long)is->done_before);
}

static void set_defaults(void *context) {
    struct chosen *chosen = context;
    engine_options_set_defaults(&chosen->choice);
}

static void release(void *context) {
    struct chosen *chosen = context;
    engine_options_release(&chosen->offline.node);
}

static enum err check(struct command_call *call, struct error *error) {
    struct chosen *chosen = call->chosen;
    if (!chosen->offline.input_path || !chosen->offline.output_path)
        return err_set(error, ERR_INVALID, "%s is missing",
                       chosen->offline.input_path ? "-o OUT" : "-i IN");
    return engine_options_check(&chosen->choice, &chosen->offline.node, error);
}

/* A terminal that can take a line back. */
static bool can_redraw(void) {
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

static enum err run(struct command_call *call, struct error *error) {
    struct chosen *chosen = call->chosen;
    struct show show = {.quiet = chosen->quiet, .terminal = can_redraw()};
    struct offline_options *offline = &chosen->offline;
    struct offline_summary summary = {0};
    enum err err = offline_check(offline, &summary, error);
    if (err != OK) return err;
    if (summary.was_finished) {
        print_summary(&summary, chosen->json, offline->output_path);
        if (summary.failed > 0) call->status = EXIT_FAILED;
        return OK;
    }
    err = engine_options_find_models(&chosen->choice, &offline->node, call->stop, error);
    if (err != OK) return err;
    log_set_level(LOG_WARN);
    offline->stop = call->stop;
    offline->context = &show;
    offline->progress = show_progress;
    offline->bad_line = show_bad_line;
    err = offline_run(offline, &summary, error);
    if (show.drawn) fputc('\n', stderr);
    if (show.bad_lines > BAD_LINES_SHOWN)
        fprintf(stderr, "and %" PRIu64 " more\n", show.bad_lines - BAD_LINES_SHOWN);
    if (err != OK) return err;
    print_summary(&summary, chosen->json, offline->output_path);
    if (summary.failed > 0) call->status = EXIT_FAILED;
    return OK;
}

static const struct option_table tables[] = {
    {rows, 0}, {engine_option_rows, offsetof(struct chosen, choice)}, {ignored_rows, 0}};

const struct command cmd_run = {
    .name = "run",
    .summary = "turn a file of requests into a file of results",
    .usage = "run -i IN.jsonl -o OUT.jsonl --model M [options]",
    .help = "Runs every request of IN and writes one result per line to OUT. Finished results are\n"
            "kept in OUT.quern; after an interruption the same command continues.\n",
    .tables = tables,
    .table_count = 3,
    .chosen_bytes = sizeof(struct chosen),
    .has_settings = true,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
