/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/price_options.h"
#include "cli/terminal.h"
#include "cli/tune_arguments.h"
#include "cli/tune_show.h"
#include "cli/vllm_options.h"
#include "node/folder.h"
#include "tune/sample.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINES_MAX 10000
#define VALUE_BYTES 24

struct chosen {
    struct engine_choice choice;
    struct node_options node; /* only its models are used */
    struct prices prices;     /* only watts are used */
    struct option_list knobs;
    int64_t lines, rounds, seconds;
    bool json;
};

#define AT(field) offsetof(struct chosen, field)
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
     .help = "option to try; repeatable (default: all seven)",
     .words = "max-model-len|quantization|max-num-seqs|max-num-batched-tokens|"
              "kv-cache-memory-bytes|kv-cache-dtype|threads",
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

/* --- settings --- */

/* What is tried of one option. */
struct knob {
    const char *name;
    const char *values[4]; /* ends in NULL; those of `threads` depend on the machine */
};

static const struct knob knobs[] = {
    {"max-model-len", {"1024", "4096"}},
    {"quantization", {"none", "int8", "fp8"}},
    {"max-num-seqs", {"16", "64", "256"}},
    {"max-num-batched-tokens", {"128", "1024", "2048"}},
    {"kv-cache-memory-bytes", {"268435456", "4294967296"}},
    {"kv-cache-dtype", {"bfloat16", "fp8"}},
    {"threads", {NULL}},
};
#define KNOB_COUNT (sizeof knobs / sizeof *knobs)

struct settings_tried {
    struct tune_setting at[TUNE_SETTINGS_MAX];
    size_t count;
    char threads[2][VALUE_BYTES];
};

static bool is_wanted(const struct chosen *chosen, const char *name) {
    for (size_t i = 0; i < chosen->knobs.count; i++)
        if (strcmp(chosen->knobs.values[i], name) == 0) return true;
    return chosen->knobs.count == 0;
}

/* The value of today, as the arguments of a trial have it; NULL: the default. */
static const char *value_today(const struct tune_arguments *today, const char *name) {
    for (size_t i = 0; i + 1 < today->count; i++)
        if (strncmp(today->at[i], "--", 2) == 0 && strcmp(today->at[i] + 2, name) == 0)
            return today->at[i + 1];
    return NULL;
}

static void add(struct settings_tried *tried, const struct tune_arguments *today, const char *knob,
                const char *value) {
    const char *now = value_today(today, knob);
    if (now && strcmp(now, value) == 0) return;
    tried->at[tried->count++] = (struct tune_setting){.knob = knob, .value = value};
}

/* One thread, and half of the cores; the default is all of them. */
static void add_threads(struct settings_tried *tried, const struct tune_arguments *today) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(tried->threads[0], VALUE_BYTES, "1");
    snprintf(tried->threads[1], VALUE_BYTES, "%ld", cores / 2);
    add(tried, today, "threads", tried->threads[0]);
    if (cores > 3) add(tried, today, "threads", tried->threads[1]);
}

static void list_settings(const struct chosen *chosen, const struct tune_arguments *today,
                          struct settings_tried *ret_tried) {
    memset(ret_tried, 0, sizeof *ret_tried);
    for (size_t i = 0; i < KNOB_COUNT; i++) {
        if (!is_wanted(chosen, knobs[i].name)) continue;
        for (size_t j = 0; j < 4 && knobs[i].values[j]; j++)
            add(ret_tried, today, knobs[i].name, knobs[i].values[j]);
        if (strcmp(knobs[i].name, "threads") == 0) add_threads(ret_tried, today);
    }
}

/* --- the command --- */

static void set_defaults(void *context) {
    struct chosen *chosen = context;
    engine_options_set_defaults(&chosen->choice);
    prices_init(&chosen->prices);
    chosen->lines = 64;
    chosen->rounds = 3;
    chosen->seconds = 900;
}

static void release(void *context) {
    struct chosen *chosen = context;
    engine_options_release(&chosen->choice, &chosen->node);
}

static enum err check(struct command_call *call, struct error *error) {
    struct chosen *chosen = call->chosen;
    if (!call->operands[0]) return err_set(error, ERR_INVALID, "FILE is missing");
    for (size_t i = 0; i < chosen->knobs.count; i++) {
        size_t at = 0;
        while (at < KNOB_COUNT && strcmp(knobs[at].name, chosen->knobs.values[i]) != 0) at++;
        if (at == KNOB_COUNT)
            return err_set(error, ERR_INVALID, "--knob: '%.60s' is none of the seven; see --help",
                           chosen->knobs.values[i]);
    }
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

static enum err try_all(struct command_call *call, const struct tune_arguments *today,
                        const char *folder, struct error *error) {
    const struct chosen *chosen = call->chosen;
    static struct settings_tried tried;
    static struct tune_baseline baseline;
    struct terminal terminal;
    char sample[PATH_MAX];
    struct tune_shown shown = {
        .path = call->operands[0], .baseline = &baseline, .settings = tried.at};
    snprintf(sample, sizeof sample, "%.4000s/sample.jsonl", folder);
    enum err err =
        sample_write(call->operands[0], (uint32_t)chosen->lines, sample, &shown.lines, error);
    if (err != OK) return err;
    list_settings(chosen, today, &tried);
    terminal_init(&terminal);
    const struct tune_options options = {
        .place = {.folder = folder, .sample = sample, .stop = call->stop},
        .base = today->at,
        .rounds = (size_t)chosen->rounds,
        .seconds = (double)chosen->seconds,
        .context = &terminal,
        .say = show_phase};
    int64_t started_ns = clock_monotonic_ns();
    err = tune_run(&options, tried.at, tried.count, &baseline, error);
    terminal_clear(&terminal);
    if (err != OK) return err;
    shown.count = tried.count;
    shown.seconds = (double)(clock_monotonic_ns() - started_ns) / 1e9;
    if (chosen->json)
        tune_show_json(&shown);
    else
        tune_show_table(&shown);
    return OK;
}

static enum err run(struct command_call *call, struct error *error) {
    struct chosen *chosen = call->chosen;
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
    .chosen_bytes = sizeof(struct chosen),
    .operands_max = 1,
    .has_settings = true,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
