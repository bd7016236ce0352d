/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/door_options.h"
#include "cli/engine_options.h"
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

static int run(int argc, char **argv) {
    struct serve_options serve = {.host = "127.0.0.1", .listening = print_listening};
    struct engine_choice choice = ENGINE_CHOICE_DEFAULT;
    int64_t port = 8080, drain_s = DRAIN_MS / 1000, lookahead = 0, hang_s = 0, stuck_s = 900;
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
    const size_t count = own_count + ENGINE_OPTION_COUNT + DOOR_OPTION_COUNT;
    struct option options[sizeof own / sizeof *own + ENGINE_OPTION_COUNT + DOOR_OPTION_COUNT];
    memcpy(options, own, sizeof own);
    engine_options_fill(options + own_count, &choice);
    door_options_fill(options + own_count + ENGINE_OPTION_COUNT, &serve);
    const struct options_help help = {
        "serve --model [ALIAS=]M [--upstream NAME=URL] [options]",
        "Serves Files, Batches, chat completions, completions and models under /v1, and prints\n"
        "\"listening on http://HOST:PORT\" once it is ready. SIGTERM drains.\n"};
    enum err err = options_read(options, count, &help, argc, argv, NULL, 0, &done, &error);
    if (done && err == OK) return EXIT_GOOD;
    if (err == OK) err = engine_options_apply(&choice, &serve.house, &error);
    if (err != OK) {
        fprintf(stderr, "quern serve: %s\n", error.text);
        free(serve.house.upstreams);
        return EXIT_WRONG_INPUT;
    }
    default_state_dir(state_dir);
    if (!serve.house.store.dir) serve.house.store.dir = state_dir;
    serve.port = (uint16_t)port;
    serve.drain_ms = drain_s * 1000;
    if (serve.webhooks.allow_private) {
        serve.house.runner.rules = batch_rules_default();
        serve.house.runner.rules.webhook_http = true;
    }
    serve.house.runner.lookahead_lines = (uint32_t)lookahead;
    serve.house.runner.stuck_ms = stuck_s * 1000;
    serve.house.engine.hang_ms = hang_s * 1000;
    serve.stop = stop_on_signals();
    err = serve_run(&serve, &error);
    free(serve.house.upstreams);
    if (err != OK) fprintf(stderr, "quern serve: %s\n", error.text);
    return exit_of(err);
}

const struct command cmd_serve = {"serve", "the server: Files, Batches, chat, completions, models",
                                  false, run};
