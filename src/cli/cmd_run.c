/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/os.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/settings.h"
#include "cli/stop.h"
#include "server/offline.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define LINE_EVERY_S 10.0
#define BAR_WIDTH 30
#define BAD_LINES_SHOWN 20

struct show {
    bool quiet, terminal, drawn;
    double line_at_s; /* when the last line was printed */
    uint64_t bad_lines;
};

/* vLLM's run-batch flags without a meaning here. */
static const char *const ignored_values[] = {
    "gpu-memory-utilization",
    "dtype",
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "data-parallel-size",
    "quantization",
    "kv-cache-dtype",
    "block-size",
    "swap-space",
    "seed",
    "tokenizer",
    "tokenizer-mode",
    "revision",
    "download-dir",
    "host",
    "port",
    "url",
    "output-tmp-dir",
    "max-log-len",
    "response-role",
    "max-logprobs",
    "cpu-offload-gb",
    "reasoning-parser",
    "generation-config",
};
static const char *const ignored_switches[] = {
    "enforce-eager",          "trust-remote-code", "disable-log-stats",
    "disable-log-requests",   "enable-metrics",    "enable-prompt-tokens-details",
    "enable-chunked-prefill", "async-scheduling",
};
#define IGNORED_COUNT                                                                              \
    (sizeof ignored_values / sizeof *ignored_values +                                              \
     sizeof ignored_switches / sizeof *ignored_switches)

static void print_clock(char ret_text[16], double seconds) {
    long whole = seconds < 0 || seconds > 3e6 ? -1 : (long)seconds;
    if (whole < 0)
        snprintf(ret_text, 16, "-:--");
    else if (whole >= 3600)
        snprintf(ret_text, 16, "%ld:%02ld:%02ld", whole / 3600 % 1000, whole / 60 % 60, whole % 60);
    else
        snprintf(ret_text, 16, "%ld:%02ld", whole / 60, whole % 60);
}

/* The first answers end together, so their rate says little about the rest. */
static double seconds_left(const struct store_batch *batch, uint64_t done, uint64_t done_now,
                           double rate) {
    uint64_t enough = batch->total / 10 > 0 ? batch->total / 10 : 1;
    return done_now >= enough && rate > 0 ? (double)(batch->total - done) / rate : -1;
}

static void draw_bar(const struct store_batch *batch, uint64_t done) {
    int filled = batch->total ? (int)(BAR_WIDTH * done / batch->total) : 0;
    char bar[BAR_WIDTH + 1];
    for (int i = 0; i < BAR_WIDTH; i++) bar[i] = i < filled ? '#' : '.';
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r\033[K[%s] ", bar);
}

static void show_progress(void *context, const struct offline_progress *progress) {
    struct show *show = context;
    const struct store_batch *batch = progress->batch;
    uint64_t done = batch->completed + batch->failed, done_now = done - progress->done_before;
    if (show->quiet) return;
    if (progress->engine) {
        if (show->terminal) fprintf(stderr, "\r\033[K%s the model", progress->engine);
        return;
    }
    if (!show->terminal && progress->seconds - show->line_at_s < LINE_EVERY_S) return;
    show->line_at_s = progress->seconds;
    double rate = progress->seconds > 0 ? (double)done_now / progress->seconds : 0;
    double speed =
        progress->seconds > 0 ? (double)progress->generated_tokens / progress->seconds : 0;
    char left[16];
    print_clock(left, seconds_left(batch, done, done_now, rate));
    if (show->terminal) draw_bar(batch, done);
    fprintf(stderr,
            "%llu/%llu done, %llu failed, %.2f req/s, ETA %s, %llu running, tokens in %llu out "
            "%llu (%.0f/s)%s",
            (unsigned long long)done, (unsigned long long)batch->total,
            (unsigned long long)batch->failed, rate, left, (unsigned long long)progress->running,
            (unsigned long long)progress->prompt_tokens,
            (unsigned long long)progress->generated_tokens, speed, show->terminal ? "" : "\n");
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

/* The engine is a process of its own, which has ended by now. */
static uint64_t peak_rss_bytes(void) {
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    return os_peak_rss_bytes() + (uint64_t)children.ru_maxrss * 1024;
}

static void print_summary(const struct offline_summary *is, bool json, const char *output) {
    double rate = is->seconds > 0 ? (double)is->requests / is->seconds : 0;
    if (!json) {
        fprintf(stderr,
                "%llu of %llu requests completed, %llu failed, in %.1f s (%.2f req/s, %.0f "
                "tokens/s out); %s\n",
                (unsigned long long)is->completed, (unsigned long long)is->requests,
                (unsigned long long)is->failed, is->seconds, rate,
                is->seconds > 0 ? (double)is->usage.output_tokens / is->seconds : 0, output);
        return;
    }
    printf("{\"requests\": %llu, \"completed\": %llu, \"failed\": %llu, \"seconds\": %.3f, "
           "\"load_seconds\": %.3f, "
           "\"req_s\": %.3f, \"prompt_tokens\": %llu, \"cached_tokens\": %llu, "
           "\"completion_tokens\": %llu, "
           "\"peak_rss_bytes\": %llu}\n",
           (unsigned long long)is->requests, (unsigned long long)is->completed,
           (unsigned long long)is->failed, is->seconds, is->load_seconds, rate,
           (unsigned long long)is->usage.input_tokens, (unsigned long long)is->usage.cached_tokens,
           (unsigned long long)is->usage.output_tokens, (unsigned long long)peak_rss_bytes());
}

static int exit_of(enum err err, const struct offline_summary *summary) {
    switch (err) {
    case OK: return summary->failed ? EXIT_LINES_FAILED : EXIT_GOOD;
    case ERR_INVALID:
    case ERR_NOT_FOUND:
    case ERR_CONFLICT: return EXIT_WRONG_INPUT;
    case ERR_CANCELLED: return 130;
    default: return EXIT_MACHINE;
    }
}

/* Fills the table: our own rows, the engine's, and those taken for compatibility. */
static size_t fill_options(struct option *options, struct offline_options *offline,
                           struct engine_choice *choice, bool *json, bool *quiet) {
    const struct option own[] = {
        {.name = "input-file",
         .letter = 'i',
         .kind = OPTION_TEXT,
         .target = &offline->input_path,
         .value = "IN",
         .help = "the requests, one JSON object a line",
         .only_flag = true},
        {.name = "output-file",
         .letter = 'o',
         .kind = OPTION_TEXT,
         .target = &offline->output_path,
         .value = "OUT",
         .help = "the results, one line a request, in input order",
         .only_flag = true},
        {.name = "json",
         .kind = OPTION_SWITCH,
         .target = json,
         .help = "the summary as one JSON object on standard output"},
        {.name = "quiet",
         .letter = 'q',
         .kind = OPTION_SWITCH,
         .target = quiet,
         .help = "no progress"},
    };
    size_t count = 0;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) options[count++] = own[i];
    engine_options_fill(options + count, choice);
    count += ENGINE_OPTION_COUNT;
    for (size_t i = 0; i < sizeof ignored_values / sizeof *ignored_values; i++)
        options[count++] =
            (struct option){.name = ignored_values[i], .kind = OPTION_IGNORED, .value = "VALUE"};
    for (size_t i = 0; i < sizeof ignored_switches / sizeof *ignored_switches; i++)
        options[count++] =
            (struct option){.name = ignored_switches[i], .kind = OPTION_IGNORED_SWITCH};
    return count;
}

void cmd_run_settings(settings_visit_fn visit, void *context) {
    struct offline_options offline = {0};
    struct engine_choice choice = ENGINE_CHOICE_DEFAULT;
    struct option options[4 + ENGINE_OPTION_COUNT + IGNORED_COUNT];
    bool json = false, quiet = false;
    visit(context, options, fill_options(options, &offline, &choice, &json, &quiet));
}

static int run(int argc, char **argv) {
    struct settings settings = {0};
    struct show show = {.terminal = isatty(STDERR_FILENO)};
    struct offline_options offline = {
        .context = &show, .progress = show_progress, .bad_line = show_bad_line};
    struct engine_choice choice = ENGINE_CHOICE_DEFAULT;
    struct option options[4 + ENGINE_OPTION_COUNT + IGNORED_COUNT];
    const struct options_help help = {"run -i IN.jsonl -o OUT.jsonl --model M [options]",
                                      "Runs every request of IN and writes one result a line to "
                                      "OUT. Results are kept in OUT.quern as they come;\n"
                                      "the same command again goes on where it was.\n"};
    struct error error = {0};
    struct offline_summary summary = {0};
    bool json = false, done = false;
    size_t count = fill_options(options, &offline, &choice, &json, &show.quiet);
    enum err err =
        settings_read(&settings, options, count, &help, argc, argv, NULL, 0, &done, &error);
    if (done && err == OK) return EXIT_GOOD;
    if (err == OK && (!offline.input_path || !offline.output_path))
        err =
            err_set(&error, ERR_INVALID, "%s is missing", offline.input_path ? "-o OUT" : "-i IN");
    if (err == OK) err = engine_options_apply(&choice, &offline.node, &error);
    if (err != OK) {
        fprintf(stderr, "quern run: %s\n", error.text);
        free(offline.node.upstreams);
        settings_release(&settings);
        return engine_options_exit(err);
    }
    log_set_level(LOG_WARN);
    offline.stop = stop_on_signals();
    err = offline_run(&offline, &summary, &error);
    free(offline.node.upstreams);
    if (show.drawn) fputc('\n', stderr);
    if (show.bad_lines > BAD_LINES_SHOWN)
        fprintf(stderr, "and %llu more\n", (unsigned long long)(show.bad_lines - BAD_LINES_SHOWN));
    if (err != OK)
        fprintf(stderr, "quern run: %s\n", error.text);
    else
        print_summary(&summary, json, offline.output_path);
    settings_release(&settings);
    return exit_of(err, &summary);
}

const struct command cmd_run = {"run", "a file of requests in, a file of results out", false, run};
