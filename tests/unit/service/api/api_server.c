/* SPDX-License-Identifier: Apache-2.0 */

/* A whole server without a model: store, runner with the echo worker, api. It prints
 * `listening on http://127.0.0.1:PORT` and runs until SIGINT or SIGTERM, for tests/api.
 *
 *   api_server STATE_DIR [PORT [KEY]]
 *
 * It serves the models `echo` and `org/name`, and `gpt-4o-mini` as an alias of `echo`. The
 * variables QUERN_ECHO_LATENCY_MS and QUERN_FILE_BYTES_MAX change what their names say. */

#include "api/api.h"
#include "base/log.h"
#include "workers/echo/worker_echo.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE_MS 5000

static uint64_t number_from(const char *name) {
    uint64_t value = 0;
    const char *text = getenv(name);
    if (text && !str_to_u64(str_from(text), &value))
        fprintf(stderr, "%s: '%s' is not a number\n", name, text);
    return value;
}

static enum err attach_echo(struct runner *runner, struct error *error) {
    static const char *const models[] = {"echo", "org/name", NULL};
    struct worker_echo_options options = {
        .models = models, .latency_ms = (int64_t)number_from("QUERN_ECHO_LATENCY_MS")};
    struct worker_events events;
    struct worker *worker;
    uint32_t seat;
    if (!runner_worker_seat(runner, &events, &seat))
        return err_set(error, ERR_LIMIT, "no place for a worker");
    enum err err = worker_echo_open(&worker, &options, &events, error);
    if (err == OK) runner_worker_attach(runner, seat, worker);
    return err;
}

static void wait_for_signal(void) {
    sigset_t signals;
    int signal_number;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigwait(&signals, &signal_number);
}

static void block_signals(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

static enum err serve(struct store *store, struct runner *runner, uint16_t port, const char *key,
                      struct error *error) {
    unsigned char digests[1][SHA256_BYTES];
    struct api_options options = {
        .port = port,
        .store = store,
        .runner = runner,
        .file_bytes_max = number_from("QUERN_FILE_BYTES_MAX"),
    };
    if (key) {
        struct sha256 hash;
        sha256_init(&hash);
        sha256_add(&hash, key, strlen(key));
        sha256_end(&hash, digests[0]);
    }
    struct api *api;
    const struct key_set_options keys = {.digests = (const unsigned char(*)[SHA256_BYTES])digests,
                                         .digest_count = key ? 1 : 0};
    enum err err = key_set_open(&options.keys, &keys, error);
    if (err == OK) err = attach_echo(runner, error);
    if (err == OK) err = runner_start(runner, error);
    if (err == OK) err = api_open(&api, &options, &port, error);
    if (err != OK) return err;
    printf("listening on http://127.0.0.1:%u\n", port);
    fflush(stdout);
    wait_for_signal();
    api_close(api, CLOSE_MS);
    key_set_close(options.keys);
    return OK;
}

int main(int argc, char **argv) {
    struct error error = {0};
    struct store *store = NULL;
    struct runner *runner = NULL;
    uint64_t port = 0;
    if (argc < 2 || argc > 4 || (argc > 2 && !str_to_u64(str_from(argv[2]), &port)) ||
        port > UINT16_MAX) {
        fprintf(stderr, "usage: api_server STATE_DIR [PORT [KEY]]\n");
        return 2;
    }
    block_signals();
    log_set_process("api_server");
    enum err err = store_open(
        &store, &(struct store_options){.dir = argv[1], .ballast_bytes = 1 << 20}, &error);
    if (err == OK) err = runner_open(&runner, store, &(struct runner_options){0}, &error);
    if (err == OK) err = serve(store, runner, (uint16_t)port, argc > 3 ? argv[3] : NULL, &error);
    if (err != OK) fprintf(stderr, "api_server: %s\n", error.text);
    runner_close(runner);
    store_close(store);
    return err == OK ? 0 : 1;
}
