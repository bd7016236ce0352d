/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/front_options.h"
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
    if (limits->extended_windows) serve->node.runner.rules.extended_windows = true;
    if (limits->max_file_bytes) serve->file_bytes_max = (uint64_t)limits->max_file_bytes;
    return err;
}

#define OWN_OPTIONS 8
#define SERVE_OPTIONS (OWN_OPTIONS + ENGINE_OPTION_COUNT + DOOR_OPTION_COUNT + LIMIT_OPTIONS)

/* What the command line says, before it is checked. */
struct asked {
    struct serve_options serve;
    struct engine_choice choice;
    struct limits limits;
    int64_t port, drain_s, lookahead, hang_s, stuck_s, preflight_s;
};

static void fill_own_options(struct option *ret_options, struct asked *asked) {
    const struct option rows[OWN_OPTIONS] = {
        {.name = "host",
         .kind = OPTION_TEXT,
         .target = &asked->serve.host,
         .value = "ADDRESS",
         .help = "to listen on; 127.0.0.1"},
        {.name = "port",
         .letter = 'p',
         .kind = OPTION_INTEGER,
         .target = &asked->port,
         .value = "N",
         .help = "8080; 0 takes any free one",
         .min = 0,
         .max = 65535},
        {.name = "state-dir",
         .kind = OPTION_TEXT,
         .target = &asked->serve.node.store.dir,
         .value = "DIR",
         .help = "everything that must last"},
        {.name = "drain-seconds",
         .kind = OPTION_INTEGER,
         .target = &asked->drain_s,
         .value = "N",
         .help = "for what is in flight after SIGTERM; 30",
         .min = 0,
         .max = 86400},
        {.name = "lookahead-lines",
         .kind = OPTION_INTEGER,
         .target = &asked->lookahead,
         .value = "N",
         .help = "lines in flight for each engine; 4096",
         .min = 0,
         .max = 65536},
        {.name = "hang-seconds",
         .kind = OPTION_INTEGER,
         .target = &asked->hang_s,
         .value = "N",
         .help = "without a step until an engine is restarted; 0: by its longest step",
         .min = 0,
         .max = 86400},
        {.name = "stuck-seconds",
         .kind = OPTION_INTEGER,
         .target = &asked->stuck_s,
         .value = "N",
         .help = "without a result until a batch is reported as stuck; 900",
         .min = 1,
         .max = 86400 * 30},
        {.name = "preflight-seconds",
         .kind = OPTION_INTEGER,
         .target = &asked->preflight_s,
         .value = "N",
         .help = "for a preflight that a client asks for; 600",
         .min = 1,
         .max = 86400},
    };
    memcpy(ret_options, rows, sizeof rows);
}

static void fill_options(struct option ret_options[SERVE_OPTIONS], struct asked *asked) {
    struct option *at = ret_options;
    fill_own_options(at, asked);
    engine_options_fill(at += OWN_OPTIONS, &asked->choice);
    front_options_fill(at += ENGINE_OPTION_COUNT, &asked->serve);
    fill_limit_options(at + DOOR_OPTION_COUNT, &asked->limits);
}

static enum err apply(struct asked *asked, struct error *error) {
    struct serve_options *serve = &asked->serve;
    enum err err = engine_options_apply(&asked->choice, &serve->node, error);
    if (err == OK) err = apply_limits(&asked->limits, serve, error);
    serve->port = (uint16_t)asked->port;
    serve->drain_ms = asked->drain_s * 1000;
    serve->preflight_ms = asked->preflight_s * 1000;
    serve->node.runner.rules.webhook_http = serve->webhooks.allow_private;
    serve->node.runner.lookahead_lines = (uint32_t)asked->lookahead;
    serve->node.runner.stuck_ms = asked->stuck_s * 1000;
    serve->node.engine.hang_ms = asked->hang_s * 1000;
    return err;
}

/* Runs the command, or shows its table to `visit`. */
static int run_or_visit(int argc, char **argv, settings_visit_fn visit, void *context) {
    struct settings settings = {0};
    struct asked asked = {.serve = {.host = "127.0.0.1", .listening = print_listening},
                          .choice = ENGINE_CHOICE_DEFAULT,
                          .limits = {.profile = "quern"},
                          .port = 8080,
                          .drain_s = DRAIN_MS / 1000,
                          .stuck_s = 900,
                          .preflight_s = 600};
    struct serve_options *serve = &asked.serve;
    bool done = false;
    char state_dir[PATH_MAX];
    struct error error = {0};
    struct option options[SERVE_OPTIONS];
    fill_options(options, &asked);
    const struct options_help help = {
        "serve --model [ALIAS=]M [--upstream NAME=URL] [options]",
        "Serves Files, Batches, chat completions, completions and models under /v1, and prints\n"
        "\"listening on http://HOST:PORT\" once it is ready. SIGTERM drains.\n"};
    if (visit) {
        visit(context, options, SERVE_OPTIONS);
        return EXIT_GOOD;
    }
    enum err err =
        settings_read(&settings, options, SERVE_OPTIONS, &help, argc, argv, NULL, 0, &done, &error);
    if (done && err == OK) return EXIT_GOOD;
    if (err == OK) err = apply(&asked, &error);
    if (err != OK) {
        fprintf(stderr, "quern serve: %s\n", error.text);
        free(serve->node.upstreams);
        settings_release(&settings);
        return engine_options_exit(err);
    }
    default_state_dir(state_dir);
    if (!serve->node.store.dir) serve->node.store.dir = state_dir;
    serve->stop = stop_on_signals();
    err = serve_run(serve, &error);
    free(serve->node.upstreams);
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
