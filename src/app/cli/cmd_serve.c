/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/mem.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/front_options.h"
#include "cli/manifest_options.h"
#include "cli/price_options.h"
#include "cli/queue_options.h"
#include "cli/remote_options.h"
#include "cli/state_dir.h"
#include "cli/stop.h"
#include "cli/vllm_options.h"
#include "dialects/duration.h"
#include "server/reload.h"
#include "server/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_ALIVE_MS 300000 /* as Ollama has it */

struct serve_command {
    const struct command_call *call;
    struct serve_options serve;
    struct engine_choice choice;
    json_t *settings; /* owned; manifests have them */
    int64_t port, drain_s, standby_s, lookahead_lines, hang_s, stuck_s, preflight_s;
    const char *profile;
    bool extended_windows;
    int64_t max_file_bytes; /* 0: the profile's */
    int64_t keep_days;      /* 0: for ever */
    const char *keep_alive;
    bool on_demand, ends_with_parent;
    struct shelf *shelf; /* with on_demand */
    struct queue_options queue;
    int64_t connections_per_address, body_memory_bytes, answer_memory_bytes;
    struct option_list api_keys, allowed_hosts, allowed_origins;
    char state_dir_usual[PATH_MAX];
    char studio_url[REMOTE_URL_BYTES];
};

#define AT(field) offsetof(struct serve_command, field)
static const struct option rows[] = {
    {"host", OPTION_TEXT, AT(serve.host), "ADDRESS",
     .help = "address to listen on (default 127.0.0.1)"},
    {"port", OPTION_INTEGER, AT(port), "N",
     .help = "port to listen on; 0: any free one (default 8080)", .letter = 'p', .max = 65535},
    {"ssl-certfile", OPTION_TEXT, AT(serve.ssl_certfile), "F",
     .help = "certificate and its chain as PEM: serves HTTPS (default: plain HTTP)",
     .reloads = true},
    {"ssl-keyfile", OPTION_TEXT, AT(serve.ssl_keyfile), "F",
     .help = "private key of the certificate as PEM (default: in the certificate's file)",
     .reloads = true},
    {"state-dir", OPTION_TEXT, AT(serve.node.store.dir), "DIR",
     .help = "folder of all durable state (default ${XDG_STATE_HOME:-~/.local/state}/quern)"},
    {"copy-to", OPTION_TEXT, AT(serve.copy_to), "PLACE",
     .help = "s3://BUCKET/PREFIX or a folder that gets all that is committed, before clients are "
             "told (default: none)"},
    {"standby", OPTION_SWITCH, AT(serve.is_standby),
     .help = "hold nothing and wait until the server that copies to --copy-to is silent; then take "
             "its copy and go on"},
    {"standby-seconds", OPTION_INTEGER, AT(standby_s), "N",
     .help = "silence after which a standby takes over (default 15 s); at least the 10 s for which "
             "the other server may still lead a queue",
     .min = SERVE_STANDBY_S_MIN, .max = 86400},
    {"signing-key", OPTION_TEXT, AT(serve.signing_key), "FILE",
     .help = "Ed25519 key that signs manifests of batches (default: signing_key in the state "
             "directory, which is made if it does not exist)"},
    {"drain-seconds", OPTION_INTEGER, AT(drain_s), "N",
     .help = "time to finish running requests after SIGTERM (default 30 s)", .max = 86400,
     .reloads = true},
    {"lookahead-lines", OPTION_INTEGER, AT(lookahead_lines), "N",
     .help = "lines with each engine at a time (default 4096)", .max = 65536},
    {"hang-seconds", OPTION_INTEGER, AT(hang_s), "N",
     .help = "time without a step until an engine is restarted (default 0: by the longest step)",
     .max = 86400},
    {"stuck-seconds", OPTION_INTEGER, AT(stuck_s), "N",
     .help = "time without a result before a batch is reported as stuck (default 900 s)", .min = 1,
     .max = 86400 * 30},
    {"keep-days", OPTION_INTEGER, AT(keep_days), "N",
     .help = "days after which ended batches are deleted with all their files (default 0: never)",
     .max = 36500},
    {"on-demand", OPTION_SWITCH, AT(on_demand),
     .help = "serve all models of this machine, each loaded at its first request (default without "
             "--model and --upstream)"},
    {"keep-alive", OPTION_TEXT, AT(keep_alive), "TIME",
     .help = "time without a request after which a model is unloaded, such as 5m; -1: never "
             "(default -1; on demand 5m)"},
    {"preflight-seconds", OPTION_INTEGER, AT(preflight_s), "N",
     .help = "time limit of a preflight that a client asks for (default 600 s)", .min = 1,
     .max = 86400},
    {"end-with-parent", OPTION_SWITCH, AT(ends_with_parent),
     .help = "end at once, without a drain, when the process that started this one ends",
     .only_flag = true},
    {0},
};

/* Limits of clients. */
static const struct option limit_rows[] = {
    {"api-key", OPTION_WORDS, AT(api_keys), "KEY...",
     .help = "keys that clients may send; others on this machine can see a command line for a "
             "moment, so --api-key-file is safer",
     .only_flag = true},
    {"allowed-host", OPTION_LIST, AT(allowed_hosts), "NAME",
     .help = "a further name of this server; without keys a request's Host must be a known one"},
    {"allowed-origin", OPTION_LIST, AT(allowed_origins), "URL",
     .help = "site whose web pages may use the API, such as https://app.example (default: none)"},
    {"profile", OPTION_TEXT, AT(profile), "NAME",
     .help = "limits and strictness: quern or openai (default quern)", .words = "quern|openai"},
    {"extended-windows", OPTION_SWITCH, AT(extended_windows),
     .help = "allow a completion_window from 1m to 30d, not only 24h"},
    {"connections-per-address", OPTION_INTEGER, AT(connections_per_address), "N",
     .help = "open connections of one address; raise it behind a proxy (default 256; loopback 896)",
     .max = 1024},
    {"body-memory-bytes", OPTION_INTEGER, AT(body_memory_bytes), "N",
     .help = "memory for all request bodies at a time; over it 503 (default 256 MiB)",
     .min = 1 << 20, .max = 1e15, .is_size = true},
    {"answer-memory-bytes", OPTION_INTEGER, AT(answer_memory_bytes), "N",
     .help = "memory for all answers that wait for their clients; over it 503 (default 256 MiB)",
     .min = 1 << 20, .max = 1e15, .is_size = true},
    {"max-file-bytes", OPTION_INTEGER, AT(max_file_bytes), "N",
     .help = "size of one upload (default 2 GiB; 512 MiB with --profile openai)", .min = 1,
     .max = 1e15, .is_size = true},
    {0},
};

static void set_defaults(void *context) {
    struct serve_command *chosen = context;
    engine_options_set_defaults(&chosen->choice);
    state_dir_default(chosen->state_dir_usual);
    chosen->serve.node.store.dir = chosen->state_dir_usual;
    chosen->serve.host = "127.0.0.1";
    prices_init(&chosen->serve.prices);
    chosen->serve.access_log = true;
    chosen->profile = "quern";
    chosen->port = 8080;
    chosen->body_memory_bytes = (int64_t)256 << 20;
    chosen->answer_memory_bytes = (int64_t)256 << 20;
    chosen->drain_s = 30;
    chosen->standby_s = 15;
    chosen->stuck_s = 900;
    chosen->lookahead_lines = 4096;
    chosen->preflight_s = 600;
}

static void release(void *context) {
    struct serve_command *chosen = context;
    engine_options_release(&chosen->choice, &chosen->serve.node);
    queue_options_release(&chosen->queue);
    shelf_close(chosen->shelf);
    json_decref(chosen->settings);
}

static enum err check(struct command_call *call, struct error *error) {
    struct serve_command *chosen = call->chosen;
    struct serve_options *serve = &chosen->serve;
    struct engine_choice *choice = &chosen->choice;
    choice->may_have_none = true;
    if (choice->models.count == 0 && choice->upstreams.count == 0 && !chosen->queue.url)
        chosen->on_demand = true;
    if (chosen->on_demand) serve->node.keep_ms = KEEP_ALIVE_MS;
    enum err err = engine_options_check(choice, &serve->node, error);
    if (err == OK) err = queue_options_check(&chosen->queue, error);
    if (chosen->queue.url) serve->node.queue = &chosen->queue;
    if (err == OK && serve->ssl_keyfile && !serve->ssl_certfile)
        err = err_set(error, ERR_INVALID, "--ssl-keyfile needs --ssl-certfile");
    if (err == OK && serve->metrics_compat && strcmp(serve->metrics_compat, "vllm") != 0)
        err =
            err_set(error, ERR_INVALID, "--metrics-compat: %s is not vllm", serve->metrics_compat);
    if (err == OK && serve->is_standby && !serve->copy_to)
        err = err_set(error, ERR_INVALID, "--standby needs --copy-to");
    if (err == OK) err = serve_set_profile(serve, chosen->profile, error);
    if (err == OK && serve->studio.url)
        err = remote_place_read_root(serve->studio.url, "--label-studio-url", chosen->studio_url,
                                     error);
    if (err == OK && chosen->keep_alive &&
        !duration_read_keep(chosen->keep_alive, &serve->node.keep_ms))
        err = err_set(error, ERR_INVALID, "--keep-alive '%.40s' is no time such as 5m, 90s or -1",
                      chosen->keep_alive);
    if (err != OK) return err;
    if (serve->studio.url) serve->studio.url = chosen->studio_url;
    if (chosen->extended_windows) serve->node.runner.rules.extended_windows = true;
    if (chosen->max_file_bytes) serve->file_bytes_max = (uint64_t)chosen->max_file_bytes;
    serve->port = (uint16_t)chosen->port;
    serve->connections_per_peer_max = (uint32_t)chosen->connections_per_address;
    serve->body_memory_bytes_max = (uint64_t)chosen->body_memory_bytes;
    serve->answer_memory_bytes_max = (uint64_t)chosen->answer_memory_bytes;
    serve->drain_ms = chosen->drain_s * 1000;
    serve->standby_ms = chosen->standby_s * 1000;
    serve->preflight_ms = chosen->preflight_s * 1000;
    serve->node.watches_cards = true;
    serve->node.runner.rules.webhook_http = serve->webhooks.allow_private;
    serve->node.runner.lookahead_lines = (uint32_t)chosen->lookahead_lines;
    serve->node.runner.keep_days = (uint32_t)chosen->keep_days;
    serve->node.runner.stuck_ms = chosen->stuck_s * 1000;
    serve->node.engine.hang_ms = chosen->hang_s * 1000;
    serve->origins = (struct origin_rules){.allowed_hosts = chosen->allowed_hosts.values,
                                           .allowed_host_count = chosen->allowed_hosts.count,
                                           .allowed_origins = chosen->allowed_origins.values,
                                           .allowed_origin_count = chosen->allowed_origins.count};
    serve->keys.told = chosen->api_keys.values;
    serve->keys.told_count = chosen->api_keys.count;
    return OK;
}

static void print_listening(void *context, const char *host, uint16_t port) {
    const struct serve_command *chosen = context;
    bool is_v6 = strchr(host, ':');
    printf("listening on %s://%s%s%s:%u\n", chosen->serve.ssl_certfile ? "https" : "http",
           is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
    fflush(stdout);
}

/* Names each changed setting that a running server cannot take over. */
static void tell_restarts(const struct command_call *running, const struct command_call *again) {
    for (size_t i = 0; i < running->options->count; i++) {
        const struct option *is = running->options->at[i].is;
        if (!option_is_setting(is) || is->reloads) continue;
        if (!option_is_same(&running->options->at[i], &again->options->at[i]))
            log_warn("event=needs_restart option=%s; SIGHUP does not change it", is->name);
    }
}

/* Takes over what was read again, or nothing of it. */
static enum err take_again(const struct command_call *running, const struct command_call *again,
                           struct reload *reload, struct error *error) {
    const struct serve_command *wanted = again->chosen;
    enum err err = reload_take(reload, &wanted->serve, error);
    if (err != OK) return err;
    log_set_level(LOG_INFO);
    if (wanted->choice.log_level) (void)log_set_level_by_name(wanted->choice.log_level);
    tell_restarts(running, again);
    return OK;
}

static void reload(void *context, struct reload *reload) {
    const struct serve_command *chosen = context;
    struct command_reading *again = mem_new(1, sizeof *again);
    struct error error;
    enum log_level level = log_level();
    const char *format = log_format_name();
    enum err err = command_read_again(again, chosen->call, &error);
    /* The check of options sets both at once, also where a later option is wrong. */
    log_set_level(level);
    (void)log_set_format_by_name(format);
    if (err == OK) {
        err = take_again(chosen->call, &again->call, reload, &error);
        command_reading_release(again);
    }
    if (err == OK)
        log_info("event=reloaded");
    else
        log_error("event=reload_failed error=\"%s\"; what was read before stays in force",
                  error.text);
    free(again);
}

static enum err run(struct command_call *call, struct error *error) {
    struct serve_command *chosen = call->chosen;
    struct serve_options *serve = &chosen->serve;
    if (chosen->ends_with_parent) die_with_parent();
    chosen->call = call;
    serve->reload = reload;
    serve->reloads = count_hangups();
    serve->context = chosen;
    serve->listening = print_listening;
    serve->stop = call->stop;
    enum err err = engine_options_find_models(&chosen->choice, &serve->node, call->stop, error);
    if (err == OK && chosen->on_demand) err = shelf_open(&chosen->shelf, call->stop, error);
    serve->node.shelf = chosen->shelf;
    serve->settings = chosen->settings = manifest_settings(&chosen->choice);
    return err == OK ? serve_run(serve, error) : err;
}

static const struct option_table tables[] = {
    {rows, 0},
    {engine_option_rows, offsetof(struct serve_command, choice)},
    {front_option_rows, offsetof(struct serve_command, serve)},
    {limit_rows, 0},
    {queue_option_rows, AT(queue)},
    {queue_memory_rows, AT(queue)},
    PRICE_TABLES(offsetof(struct serve_command, serve.prices)),
    {vllm_option_rows, 0}};

const struct command cmd_serve = {
    .name = "serve",
    .summary = "serve Files, Batches, chat, completions, embeddings, models",
    .usage = "serve [[ALIAS=]M...] [--upstream NAME=URL] [options]",
    .help =
        "Serves Files, Batches, chat completions, completions, embeddings and models under /v1,\n"
        "and prints \"listening on http://HOST:PORT\" once it is ready (https:// with a\n"
        "certificate). SIGTERM drains; SIGHUP reads keys, certificate and settings again.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct serve_command),
    .operand_as = "model",
    .has_settings = true,
    .stops = true,
    .logs = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
