/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/command.h"
#include "cli/remote_options.h"
#include "cli/terminal.h"
#include "cli/top_show.h"
#include "net/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define URL_BYTES (REMOTE_URL_BYTES + 16)
#define TEXT_BYTES_MAX ((size_t)16 << 20)
#define WHOLE_MS 10000
#define SLICE_MS 100

struct top_command {
    struct remote_choice remote;
    int64_t seconds;
    bool once;
};

#define AT(field) offsetof(struct top_command, field)
static const struct option rows[] = {
    {"seconds", OPTION_INTEGER, AT(seconds), "N", .help = "time between two readings (default 2 s)",
     .min = 1, .max = 3600},
    {"once", OPTION_SWITCH, AT(once), .help = "print one table, from two readings, and end"},
    {0},
};

/* One reading on its way. */
struct fetch {
    struct buf body;
    bool is_done;
    enum err err;
    struct error error;
    const char *url;
};

static void on_done(void *context, const struct net_answer *answer) {
    struct fetch *fetch = context;
    fetch->is_done = true;
    fetch->err = OK;
    buf_clear(&fetch->body);
    if (answer->end == NET_END_WHOLE && answer->status == 200)
        buf_add_str(&fetch->body, answer->body);
    else if (answer->end != NET_END_WHOLE)
        fetch->err = err_set(&fetch->error, ERR_UNAVAILABLE, "%.200s %.100s%s%.200s", fetch->url,
                             answer->what, *answer->fault ? ": " : "", answer->fault);
    else if (answer->status == 401 || answer->status == 403)
        fetch->err =
            err_set(&fetch->error, ERR_DENIED,
                    "%.200s wants a key with the scope metrics: --api-key-file or OPENAI_API_KEY",
                    fetch->url);
    else
        fetch->err = err_set(&fetch->error, ERR_UNAVAILABLE, "%.200s answers %d", fetch->url,
                             answer->status);
}

static enum err read_metrics(struct net_client *client, struct fetch *fetch,
                             const volatile bool *stop, struct top_reading *ret_reading,
                             struct error *error) {
    const struct net_request request = {
        .url = fetch->url, .sends_key = true, .whole_ms = WHOLE_MS, .owner = fetch};
    fetch->is_done = false;
    struct net_exchange *exchange = net_client_start(client, &request);
    while (!fetch->is_done && !*stop) net_client_poll(client, SLICE_MS);
    if (!fetch->is_done) {
        net_client_abort(client, exchange);
        return err_set(error, ERR_CANCELLED, "stopped");
    }
    if (fetch->err != OK) return err_set(error, fetch->err, "%s", fetch->error.text);
    top_show_read(ret_reading, buf_str(&fetch->body), clock_monotonic_ns());
    return OK;
}

static void show(const struct top_reading *now, const struct top_reading *before) {
    struct buf out;
    buf_init(&out, (size_t)1 << 20);
    if (terminal_obeys(STDOUT_FILENO)) buf_add_text(&out, TERMINAL_CLEAR_SCREEN);
    top_show_write(&out, now, before);
    fwrite(out.at, 1, out.bytes, stdout);
    fflush(stdout);
    buf_release(&out);
}

static void wait_seconds(int64_t seconds, const volatile bool *stop) {
    int64_t end_ns = clock_monotonic_ns() + seconds * 1000000000;
    while (!*stop && clock_monotonic_ns() < end_ns) clock_sleep_ms(SLICE_MS / 2);
}

/* Reads and shows until it is stopped. A server that goes away is reported and waited for. */
static enum err watch(struct net_client *client, struct fetch *fetch,
                      const struct top_command *chosen, const volatile bool *stop,
                      struct error *error) {
    struct top_reading *readings = mem_new(2, sizeof *readings);
    enum err err = read_metrics(client, fetch, stop, &readings[0], error);
    if (err == OK && !chosen->once) show(&readings[0], &readings[1]);
    for (int turn = 1; err == OK && !*stop; turn ^= 1) {
        wait_seconds(chosen->seconds, stop);
        err = read_metrics(client, fetch, stop, &readings[turn], error);
        if (err == OK) show(&readings[turn], &readings[turn ^ 1]);
        if (chosen->once) break;
        if (err == ERR_UNAVAILABLE) {
            fprintf(stderr, "quern top: %s\n", error->text);
            memset(readings, 0, 2 * sizeof *readings);
            err = OK;
        }
    }
    free(readings);
    return err == ERR_CANCELLED ? OK : err;
}

/* The operand is the server's URL, as --base-url is. */
static enum err check(struct command_call *call, struct error *error) {
    struct top_command *chosen = call->chosen;
    char url[REMOTE_URL_BYTES];
    if (!call->operands[0]) return remote_place_check(&chosen->remote, error);
    if (chosen->remote.base_url)
        return err_set(error, ERR_INVALID, "URL and --base-url name the server twice");
    chosen->remote.base_url = call->operands[0];
    return remote_place_read_url(call->operands[0], "URL", url, error);
}

static void make_url(const struct remote_place *place, char ret_url[URL_BYTES]) {
    struct str url = str_from(place->base_url);
    if (str_ends_with(url, STR("/v1"))) url.bytes -= 3;
    snprintf(ret_url, URL_BYTES, "%.*s/metrics", STR_ARGS(url));
}

static enum err run(struct command_call *call, struct error *error) {
    const struct top_command *chosen = call->chosen;
    char url[URL_BYTES];
    struct remote_place place = {0};
    struct net_client *client = NULL;
    struct fetch fetch = {.url = url};
    enum err err = remote_place_read(&chosen->remote, &place, error);
    if (err != OK) {
        remote_place_release(&place);
        return err;
    }
    make_url(&place, url);
    const struct net_client_options options = {.exchanges_max = 1,
                                               .text_bytes_max = TEXT_BYTES_MAX,
                                               .connect_ms = WHOLE_MS,
                                               .key = place.key.text,
                                               .certificates = place.ca_file,
                                               .context = &fetch,
                                               .done = on_done};
    buf_init(&fetch.body, TEXT_BYTES_MAX);
    err = net_client_open(&client, &options, error);
    if (err == OK) err = watch(client, &fetch, chosen, call->stop, error);
    net_client_close(client);
    buf_release(&fetch.body);
    remote_place_release(&place);
    return err;
}

static void set_defaults(void *context) {
    struct top_command *chosen = context;
    chosen->seconds = 2;
}

static const struct option_table tables[] = {{rows, 0}, {remote_option_rows, AT(remote)}};

const struct command cmd_top = {
    .name = "top",
    .summary = "show the engines and GPUs of a running server",
    .usage = "top [URL] [options]",
    .help =
        "Shows, anew every few seconds, what the /metrics of the server at URL report: engines,\n"
        "their rates and memory, and GPUs. The key needs the scope metrics.\n",
    .tables = tables,
    .table_count = sizeof tables / sizeof *tables,
    .chosen_bytes = sizeof(struct top_command),
    .operands_max = 1,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
