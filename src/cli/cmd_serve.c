/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/door_options.h"
#include "cli/engine_options.h"
#include "cli/settings.h"
#include "cli/state_dir.h"
#include "cli/stop.h"
#include "server/serve.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRAIN_MS 30000

static void print_listening(void *context, const char *host, uint16_t port) {
    (void)context;
    printf(strchr(host, ':') ? "listening on http://[%s]:%u\n" : "listening on http://%s:%u\n",
           host, port);
    fflush(stdout);
}

static int exit_of(enum err err) {
    return err == OK ? EXIT_GOOD : EXIT_MACHINE;
}

/* What clients may ask for. */
struct limits {
    const char *profile;
    bool extended_windows;
    int64_t max_file_bytes; /* 0: the profile's */
};
#define LIMIT_OPTIONS 3

static void fill_limit_options(struct option *ret_options, struct limits *limits) {
    const struct option rows[LIMIT_OPTIONS] = {
        {.name = "profile",
         .kind = OPTION_TEXT,
         .target = &limits->profile,
         .value = "NAME",
         .help = "quern, or openai: its limits and strictness"},
        {.name = "extended-windows",
         .kind = OPTION_SWITCH,
         .target = &limits->extended_windows,
         .help = "completion_window from 1m to 30d, not only 24h"},
        {.name = "max-file-bytes",
         .kind = OPTION_INTEGER,
         .target = &limits->max_file_bytes,
         .value = "N",
         .help = "of one upload; 2147483648",
         .min = 1,
         .max = 1e15},
    };
    memcpy(ret_options, rows, sizeof rows);
}

static enum err apply_limits(const struct limits *limits, struct serve_options *serve,
                             struct error *error) {
    enum err err = serve_set_profile(serve, limits->profile, error);
    if (limits->extended_windows) serve->house.runner.rules.extended_windows = true;
    if (limits->max_file_bytes) serve->file_bytes_max = (uint64_t)limits->max_file_bytes;
    return err;
}

/* Runs the command, or shows its table to `visit`. */
static int run_or_visit(int argc, char **argv, settings_visit_fn visit, void *context) {
    struct settings settings = {0};
    struct serve_options serve = {.host = "127.0.0.1", .listening = print_listening};
    struct engine_choice choice = ENGINE_CHOICE_DEFAULT;
    int64_t port = 8080, drain_s = DRAIN_MS / 1000, lookahead = 0, hang_s = 0, stuck_s = 900;
    struct limits limits = {.profile = "quern"};
    bool done = false;
    char state_dir[PATH_MAX];
    struct error error = {0};
    const struct option own[] = {
        {.name = "host",
         .kind = OPTION_TEXT,
         .target = &serve.host,
         .value = "ADDRESS",
         .help = "to listen on; 127.0.0.1"},
        {.name = "port",
         .letter = 'p',
         .kind = OPTION_INTEGER,
         .target = &port,
         .value = "N",
         .help = "8080; 0 takes any free one",
         .min = 0,
         .max = 65535},
        {.name = "state-dir",
         .kind = OPTION_TEXT,
         .target = &serve.house.store.dir,
         .value = "DIR",
         .help = "everything that must last"},
        {.name = "drain-seconds",
         .kind = OPTION_INTEGER,
         .target = &drain_s,
         .value = "N",
         .help = "for what is in flight after SIGTERM; 30",
         .min = 0,
         .max = 86400},
        {.name = "lookahead-lines",
         .kind = OPTION_INTEGER,
         .target = &lookahead,
         .value = "N",
         .help = "lines in flight for each engine; 4096",
         .min = 0,
         .max = 65536},
        {.name = "hang-seconds",
         .kind = OPTION_INTEGER,
         .target = &hang_s,
         .value = "N",
         .help = "without a step until an engine is restarted; 0: by its longest step",
         .min = 0,
         .max = 86400},
        {.name = "stuck-seconds",
         .kind = OPTION_INTEGER,
         .target = &stuck_s,
         .value = "N",
         .help = "without a result until a batch is reported as stuck; 900",
         .min = 1,
         .max = 86400 * 30},
    };
    const size_t own_count = sizeof own / sizeof *own;
    const size_t count = own_count + ENGINE_OPTION_COUNT + DOOR_OPTION_COUNT + LIMIT_OPTIONS;
    struct option
        options[sizeof own / sizeof *own + ENGINE_OPTION_COUNT + DOOR_OPTION_COUNT + LIMIT_OPTIONS];
    memcpy(options, own, sizeof own);
    engine_options_fill(options + own_count, &choice);
    door_options_fill(options + own_count + ENGINE_OPTION_COUNT, &serve);
    fill_limit_options(options + count - LIMIT_OPTIONS, &limits);
    const struct options_help help = {
        "serve --model [ALIAS=]M [--upstream NAME=URL] [options]",
        "Serves Files, Batches, chat completions, completions and models under /v1, and prints\n"
        "\"listening on http://HOST:PORT\" once it is ready. SIGTERM drains.\n"};
    if (visit) {
        visit(context, options, count);
        return EXIT_GOOD;
    }
    enum err err =
        settings_read(&settings, options, count, &help, argc, argv, NULL, 0, &done, &error);
    if (done && err == OK) return EXIT_GOOD;
    if (err == OK) err = engine_options_apply(&choice, &serve.house, &error);
    if (err == OK) err = apply_limits(&limits, &serve, &error);
    if (err != OK) {
        fprintf(stderr, "quern serve: %s\n", error.text);
        free(serve.house.upstreams);
        settings_release(&settings);
        return EXIT_WRONG_INPUT;
    }
    default_state_dir(state_dir);
    if (!serve.house.store.dir) serve.house.store.dir = state_dir;
    serve.port = (uint16_t)port;
    serve.drain_ms = drain_s * 1000;
    serve.house.runner.rules.webhook_http = serve.webhooks.allow_private;
    serve.house.runner.lookahead_lines = (uint32_t)lookahead;
    serve.house.runner.stuck_ms = stuck_s * 1000;
    serve.house.engine.hang_ms = hang_s * 1000;
    serve.stop = stop_on_signals();
    err = serve_run(&serve, &error);
    free(serve.house.upstreams);
    if (err != OK) fprintf(stderr, "quern serve: %s\n", error.text);
    settings_release(&settings);
    return exit_of(err);
}

static int run(int argc, char **argv) {
    return run_or_visit(argc, argv, NULL, NULL);
}

void cmd_serve_settings(settings_visit_fn visit, void *context) {
    run_or_visit(0, NULL, visit, context);
}

const struct command cmd_serve = {"serve", "the server: Files, Batches, chat, completions, models",
                                  false, run};
