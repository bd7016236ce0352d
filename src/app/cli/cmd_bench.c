/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "bench/bench_server.h"
#include "bench/benchmark.h"
#include "cli/bench_show.h"
#include "cli/command.h"
#include "cli/remote_options.h"
#include "cli/roofline_show.h"
#include "secrets/secret.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONCURRENCY_MAX 4096
#define WORDS_MAX 1000000

struct bench_command {
    struct remote_choice remote;
    const char *model, *compare_key_file;
    const char *concurrencies, *rates, *sizes, *folder;
    struct option_list peers;
    int64_t prompts, prefix_words, seed, rounds, warmups;
    bool stream, fresh, detailed, json;

    /* Owned by the command: */
    struct benchmark benchmark;
    struct remote_place place;
    struct secret peer_key;
    struct bench_server server;
    char names[BENCH_TARGETS_MAX][64];
    char urls[BENCH_TARGETS_MAX][REMOTE_URL_BYTES];
    char folder_usual[64];
};

#define AT(field) offsetof(struct bench_command, field)
static const struct option rows[] = {
    {"model", OPTION_TEXT, AT(model), "[ALIAS=]M",
     .help = "model to start a server of quern for, instead of --base-url", .letter = 'm'},
    {"compare-url", OPTION_LIST, AT(peers), "[NAME=]URL",
     .help = "another server that gets the same requests, such as http://127.0.0.1:8000/v1"},
    {"compare-key-file", OPTION_TEXT, AT(compare_key_file), "F",
     .help = "file of the key for the one server of --compare-url"},
    {"concurrency", OPTION_TEXT, AT(concurrencies), "N,N...",
     .help = "requests in flight, one run for each (default 1,8,64)"},
    {"request-rate", OPTION_TEXT, AT(rates), "R,R...",
     .help = "requests per second started at random times, instead of --concurrency"},
    {"num-prompts", OPTION_INTEGER, AT(prompts), "N",
     .help = "requests per run (default 0: 64 drawn ones, or all lines of a file)",
     .max = 10000000},
    {"sizes", OPTION_TEXT, AT(sizes), "IN:OUT,IN:OUT...",
     .help = "words of a drawn prompt and tokens of its answer (default 256:128)"},
    {"prefix", OPTION_INTEGER, AT(prefix_words), "N",
     .help = "words that all drawn prompts begin with (default 0)", .max = WORDS_MAX},
    {"seed", OPTION_INTEGER, AT(seed), "N",
     .help = "seed of drawn prompts and of random times (default 1)", .max = 9e15},
    {"rounds", OPTION_INTEGER, AT(rounds), "N",
     .help = "rounds in which each server has its turn (default 1; with --compare-url 3)",
     .max = 1000},
    {"num-warmups", OPTION_INTEGER, AT(warmups), "N",
     .help = "requests before each run that are not counted (default 1)", .max = 100000},
    {"fresh", OPTION_SWITCH, AT(fresh),
     .help = "begin each prompt with a mark of its run, which no prefix cache has (default on; off "
             "sends all prompts as they are, in every run)"},
    {"stream", OPTION_SWITCH, AT(stream),
     .help = "ask for streamed answers (default on; off measures no first token)"},
    {"result-dir", OPTION_TEXT, AT(folder), "DIR",
     .help = "folder for results and report (default bench-DATE-TIME)", .letter = 'o'},
    {"save-detailed", OPTION_SWITCH, AT(detailed),
     .help = "put one value per request into each run's JSON file as well"},
    {"json", OPTION_SWITCH, AT(json), .help = "print the figures as one JSON object"},
    {0},
};

static void set_defaults(void *context) {
    struct bench_command *chosen = context;
    chosen->concurrencies = "1,8,64";
    chosen->sizes = "256:128";
    chosen->seed = 1;
    chosen->warmups = 1;
    chosen->fresh = true;
    chosen->stream = true;
}

static void release(void *context) {
    struct bench_command *chosen = context;
    benchmark_release(&chosen->benchmark);
    bench_server_stop(&chosen->server);
    remote_place_release(&chosen->place);
    secret_release(&chosen->peer_key);
}

/* --- texts of options --- */

/* The next of the parts that commas separate; false at the end. */
static bool next_part(const char **rest, char ret_part[32]) {
    size_t bytes = strcspn(*rest, ",");
    if (**rest == '\0' || bytes >= 32) return false;
    snprintf(ret_part, 32, "%.*s", (int)bytes, *rest);
    *rest += bytes + ((*rest)[bytes] == ',');
    return true;
}

static enum err read_concurrencies(struct bench_command *chosen, struct error *error) {
    struct benchmark *benchmark = &chosen->benchmark;
    const char *rest = chosen->concurrencies;
    char part[32];
    while (benchmark->load_count < BENCH_LOADS_MAX && next_part(&rest, part)) {
        uint64_t value = 0;
        if (!str_to_u64(str_from(part), &value) || value < 1 || value > CONCURRENCY_MAX)
            return err_set(error, ERR_INVALID, "--concurrency: '%s' is not a number from 1 to %d",
                           part, CONCURRENCY_MAX);
        benchmark->loads[benchmark->load_count++] =
            (struct bench_load){.concurrency = (uint32_t)value};
    }
    if (*rest || benchmark->load_count == 0)
        return err_set(error, ERR_INVALID, "--concurrency: it needs 1 to %d numbers",
                       BENCH_LOADS_MAX);
    return OK;
}

static enum err read_rates(struct bench_command *chosen, struct error *error) {
    struct benchmark *benchmark = &chosen->benchmark;
    const char *rest = chosen->rates;
    char part[32], *end;
    while (benchmark->load_count < BENCH_LOADS_MAX && next_part(&rest, part)) {
        double value = strtod(part, &end);
        if (end == part || *end || !(value > 0 && value <= 1e6))
            return err_set(error, ERR_INVALID, "--request-rate: '%s' is no rate", part);
        benchmark->loads[benchmark->load_count++] =
            (struct bench_load){.concurrency = CONCURRENCY_MAX, .rate = value};
    }
    if (*rest || benchmark->load_count == 0)
        return err_set(error, ERR_INVALID, "--request-rate: it needs 1 to %d rates",
                       BENCH_LOADS_MAX);
    return OK;
}

static enum err draw_sizes(struct bench_command *chosen, struct error *error) {
    struct benchmark *benchmark = &chosen->benchmark;
    const char *rest = chosen->sizes;
    char part[32];
    while (benchmark->workload_count < BENCH_WORKLOADS_MAX && next_part(&rest, part)) {
        char *colon = strchr(part, ':');
        uint64_t words = 0, tokens = 0;
        if (!colon || !str_to_u64((struct str){part, (size_t)(colon - part)}, &words) ||
            !str_to_u64(str_from(colon + 1), &tokens) || words < 1 || words > WORDS_MAX ||
            tokens < 1 || tokens > WORDS_MAX)
            return err_set(error, ERR_INVALID, "--sizes: '%s' is not such as 256:128", part);
        const struct workload_draw draw = {
            .count = (uint32_t)(chosen->prompts > 0 ? chosen->prompts : 64),
            .input_words = (uint32_t)words,
            .output_tokens = (uint32_t)tokens,
            .prefix_words = (uint32_t)chosen->prefix_words,
            .seed = (uint64_t)chosen->seed};
        workload_draw(&benchmark->workloads[benchmark->workload_count++], &draw);
    }
    if (*rest || benchmark->workload_count == 0)
        return err_set(error, ERR_INVALID, "--sizes: it needs 1 to %d sizes", BENCH_WORKLOADS_MAX);
    return OK;
}

/* --- servers --- */

/* Takes the name in front of '=' off, or makes one of host and port. */
static const char *split_name(const char *text, char ret_name[64]) {
    const char *equals = strchr(text, '='), *scheme = strstr(text, "://");
    if (equals && (!scheme || equals < scheme)) {
        snprintf(ret_name, 64, "%.*s", (int)(equals - text), text);
        return equals + 1;
    }
    const char *host = scheme ? scheme + 3 : text;
    snprintf(ret_name, 64, "%.*s", (int)strcspn(host, "/"), host);
    return text;
}

static enum err add_peer(struct bench_command *chosen, const char *text, struct error *error) {
    struct benchmark *benchmark = &chosen->benchmark;
    size_t number = benchmark->target_count;
    if (number == BENCH_TARGETS_MAX)
        return err_set(error, ERR_INVALID, "--compare-url: there are more than %d servers",
                       BENCH_TARGETS_MAX - 1);
    const char *url = split_name(text, chosen->names[number]);
    enum err err = remote_place_read_url(url, "--compare-url", chosen->urls[number], error);
    if (err != OK) return err;
    benchmark->targets[benchmark->target_count++] =
        (struct bench_target){.name = chosen->names[number],
                              .base_url = chosen->urls[number],
                              .key = chosen->peer_key.text,
                              .ca_file = chosen->remote.ca_file};
    return OK;
}

static enum err read_servers(struct bench_command *chosen, struct error *error) {
    struct benchmark *benchmark = &chosen->benchmark;
    enum err err = OK;
    if (chosen->compare_key_file && chosen->peers.count != 1)
        return err_set(error, ERR_INVALID, "--compare-key-file needs one --compare-url");
    if (chosen->model && chosen->remote.base_url)
        return err_set(error, ERR_INVALID, "--model starts a server: it excludes --base-url");
    if (!chosen->model) err = remote_place_read(&chosen->remote, &chosen->place, error);
    if (err == OK && chosen->compare_key_file)
        err = secret_read_file(&chosen->peer_key, chosen->compare_key_file, error);
    if (err == OK && chosen->peer_key.text)
        chosen->peer_key.text[strcspn(chosen->peer_key.text, "\r\n")] = '\0';
    benchmark->targets[benchmark->target_count++] =
        (struct bench_target){.name = "quern",
                              .base_url = chosen->place.base_url,
                              .key = chosen->place.key.text,
                              .ca_file = chosen->remote.ca_file};
    for (size_t i = 0; i < chosen->peers.count && err == OK; i++)
        err = add_peer(chosen, chosen->peers.values[i], error);
    return err;
}

/* --- the command --- */

static void choose_folder(struct bench_command *chosen) {
    time_t now = time(NULL);
    struct tm tm;
    if (chosen->folder) return;
    if (localtime_r(&now, &tm))
        strftime(chosen->folder_usual, sizeof chosen->folder_usual, "bench-%Y%m%d-%H%M%S", &tm);
    chosen->folder = chosen->folder_usual;
}

/* `quern bench kernels`; a file of that name is ./kernels. */
static bool is_for_kernels(const struct command_call *call) {
    return call->operands[0] && strcmp(call->operands[0], "kernels") == 0;
}

static enum err check(struct command_call *call, struct error *error) {
    struct bench_command *chosen = call->chosen;
    struct benchmark *benchmark = &chosen->benchmark;
    if (is_for_kernels(call)) return OK;
    enum err err = chosen->rates ? read_rates(chosen, error) : read_concurrencies(chosen, error);
    if (err == OK) err = read_servers(chosen, error);
    if (err == OK && !call->operands[0]) err = draw_sizes(chosen, error);
    choose_folder(chosen);
    benchmark->rounds = (uint32_t)chosen->rounds;
    if (benchmark->rounds == 0) benchmark->rounds = chosen->peers.count > 0 ? 3 : 1;
    benchmark->drive = (struct bench_drive_options){.is_streamed = chosen->stream,
                                                    .is_fresh = chosen->fresh,
                                                    .warmups = (uint32_t)chosen->warmups,
                                                    .seed = (uint64_t)chosen->seed};
    benchmark->folder = chosen->folder;
    benchmark->is_detailed = chosen->detailed;
    return err;
}

static enum err start_server(struct bench_command *chosen, struct error *error) {
    if (!chosen->model) return OK;
    enum err err = bench_server_start(&chosen->server, chosen->model, error);
    if (err == OK) chosen->benchmark.targets[0].base_url = chosen->server.base_url;
    return err;
}

static enum err run_kernels(const struct bench_command *chosen, struct error *error) {
    struct roofline roofline;
    enum err err = roofline_measure(&roofline, error);
    if (err == OK) roofline_show(&roofline, chosen->json);
    return err;
}

static enum err run(struct command_call *call, struct error *error) {
    struct bench_command *chosen = call->chosen;
    struct benchmark *benchmark = &chosen->benchmark;
    struct terminal terminal;
    enum err err = OK;
    if (is_for_kernels(call)) return run_kernels(chosen, error);
    if (call->operands[0]) {
        err = workload_read(&benchmark->workloads[benchmark->workload_count++], call->operands[0],
                            chosen->prompts > 0 ? (size_t)chosen->prompts : 0, error);
    }
    if (err == OK) err = start_server(chosen, error);
    if (err == OK) err = benchmark_find_models(benchmark, error);
    if (err != OK) return err;
    terminal_init(&terminal);
    benchmark->drive.stop = call->stop;
    benchmark->show = bench_show_run;
    benchmark->context = &terminal;
    err = benchmark_run(benchmark, error);
    terminal_clear(&terminal);
    if (err != OK) return err;
    if (chosen->json)
        bench_show_json(benchmark);
    else
        bench_show_table(benchmark);
    if (benchmark_failed(benchmark) > 0) call->status = EXIT_FAILED;
    return OK;
}

static const struct option_table tables[] = {{rows, 0}, {remote_option_rows, AT(remote)}};

const struct command cmd_bench = {
    .name = "bench",
    .summary = "measure throughput and latency of servers, side by side",
    .usage = "bench [kernels | LINES.jsonl] [--model M | --base-url URL] [--compare-url URL]... "
             "[options]",
    .help =
        "Sends the lines of a batch file, or drawn chats, to a server of quern and to others, in\n"
        "turns, and prints throughput, time to first token, time per token and latency. Leaves\n"
        "every request, one JSON file per run as vLLM's benchmark writes it, and a report page.\n"
        "`quern bench kernels` measures this CPU instead: its roofline, and what the kernels reach "
        "of it.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct bench_command),
    .operands_max = 1,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
    .release = release,
};
