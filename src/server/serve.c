/* SPDX-License-Identifier: Apache-2.0 */
#include "server/serve.h"

#include "api/api.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define KEYS_MAX 1024
#define KEY_FILE_BYTES_MAX ((size_t)1 << 20)
#define POLL_MS 50
#define CLOSE_MS 2000

/* The keys of the file as digests: the text itself is not kept. */
static enum err read_keys(const char *path, unsigned char (*ret_digests)[SHA256_BYTES],
                          size_t *ret_count, struct error *error) {
    char *text;
    size_t bytes;
    *ret_count = 0;
    enum err err = os_read_file(path, KEY_FILE_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err;
    struct str rest = {text, bytes};
    while (err == OK && rest.bytes > 0) {
        size_t end = str_find_byte(rest, '\n', 0);
        struct str key = str_trim((struct str){rest.at, end == SIZE_MAX ? rest.bytes : end});
        rest = str_skip(rest, end == SIZE_MAX ? rest.bytes : end + 1);
        if (key.bytes == 0 || key.at[0] == '#') continue;
        if (*ret_count == KEYS_MAX) {
            err = err_set(error, ERR_LIMIT, "%s has more than %d keys", path, KEYS_MAX);
            break;
        }
        struct sha256 hash;
        sha256_init(&hash);
        sha256_add(&hash, key.at, key.bytes);
        sha256_end(&hash, ret_digests[(*ret_count)++]);
    }
    explicit_bzero(text, bytes);
    free(text);
    if (err == OK && *ret_count == 0) err = err_set(error, ERR_INVALID, "%s has no key", path);
    return err;
}

static enum err open_door(const struct serve_options *options, struct house *house,
                          struct notify *notify, unsigned char (*digests)[SHA256_BYTES],
                          struct api **ret_api, uint16_t *ret_port, struct error *error) {
    struct api_options api = {.host = options->host,
                              .port = options->port,
                              .store = house_store(house),
                              .runner = house_runner(house),
                              .notify = notify,
                              .rules = options->house.runner.rules};
    if (options->api_key_file) {
        enum err err = read_keys(options->api_key_file, digests, &api.key_count, error);
        if (err != OK) return err;
        api.key_digests = (const unsigned char(*)[SHA256_BYTES])digests;
    }
    return api_open(ret_api, &api, ret_port, error);
}

static enum err open_notify(const struct serve_options *options, struct house *house,
                            struct notify **ret_notify, struct error *error) {
    struct secret_variables variables = {0};
    enum err err =
        options->env_file ? secret_variables_read(&variables, options->env_file, error) : OK;
    if (err == OK)
        err = webhooks_open(ret_notify, &options->webhooks, house_store(house), &variables, error);
    secret_variables_release(&variables);
    return err;
}

/* A connection takes three descriptors; the usual soft limit of 1024 is for programs that use
 * select. */
static void raise_open_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        log_warn("open files stay at %llu", (unsigned long long)limit.rlim_cur);
}

static void wait_for_stop(const volatile bool *stop) {
    while (!*stop) clock_sleep_ms(POLL_MS);
}

enum err serve_run(const struct serve_options *options, struct error *error) {
    struct house *house;
    struct api *api = NULL;
    struct notify *notify = NULL;
    uint16_t port = 0;
    raise_open_files();
    enum err err = house_open(&house, &options->house, error);
    if (err != OK) return err;
    unsigned char(*digests)[SHA256_BYTES] = calloc(KEYS_MAX, sizeof *digests);
    if (!digests) abort();
    /* The door opens first, so that /health tells "loading" meanwhile. */
    err = open_notify(options, house, &notify, error);
    if (err == OK) err = open_door(options, house, notify, digests, &api, &port, error);
    if (err == OK) err = house_wait_ready(house, options->stop, error);
    if (err == OK) err = house_start(house, error);
    if (err == OK) {
        options->listening(options->context, options->host, port);
        wait_for_stop(options->stop);
        log_info("draining deadline_ms=%lld", (long long)options->drain_ms);
        api_drain(api);
        bool empty = runner_drain(house_runner(house), options->drain_ms);
        log_info("drained left=%s", empty ? "nothing" : "lines that the next start runs again");
    }
    api_close(api, CLOSE_MS);
    notify_close(notify, CLOSE_MS);
    house_close(house, 0);
    free(digests);
    return err == ERR_CANCELLED ? OK : err;
}
