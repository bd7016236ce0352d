/* SPDX-License-Identifier: Apache-2.0 */
#include "net/client.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/no_memory.h"
#include "net/exchange.h"
#include "net/wait.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NS_PER_MS ((int64_t)1000000)
#define CLOCK_MS 100 /* between two checks of the time limits */

struct net_client {
    struct net_client_options options;
    char *key_line; /* NULL: no key */
    CURLM *multi;
    struct net_exchange *exchanges; /* (exchanges_max) */
    uint32_t busy_count;
    int64_t checked_ns;
};

/* --- starting --- */

struct net_exchange *net_client_start(struct net_client *client,
                                      const struct net_request *request) {
    struct net_exchange *exchange = client->exchanges;
    assert(client->busy_count < client->options.exchanges_max);
    while (exchange->is_busy) exchange++;
    exchange->client = client;
    exchange->options = &client->options;
    exchange_begin(exchange, request, client->key_line);
    client->busy_count++;
    if (curl_multi_add_handle(client->multi, exchange->easy) != CURLM_OK) no_memory();
    return exchange;
}

/* --- ending --- */

/* Frees the exchange's place, once libcurl has released the exchange. */
static void leave(struct net_exchange *exchange) {
    exchange_end(exchange);
    exchange->client->busy_count--;
}

void net_client_abort(struct net_client *client, struct net_exchange *exchange) {
    assert(exchange->is_busy);
    curl_multi_remove_handle(client->multi, exchange->easy);
    leave(exchange);
}

/* Tells the owner. `what` is a constant, and empty without a failure. */
static void finish(struct net_exchange *exchange, enum net_end end, const char *what,
                   CURLcode code) {
    const struct net_client *client = exchange->client;
    const char *fault = code == CURLE_OK ? "" : curl_easy_strerror(code);
    char *location = NULL;
    struct net_answer answer = {
        .owner = exchange->owner,
        .end = end,
        .status = net_exchange_status(exchange),
        .body = buf_str(&exchange->in),
        .retry_after_ms = net_wait_asked_ms(exchange),
        .reset_ms = net_wait_reset_ms(exchange),
        .sent_ns = exchange->sent_ns,
        .ended_ns = clock_monotonic_ns(),
        .what = what,
        .fault = fault,
        .why = code != CURLE_OK && *exchange->reason ? exchange->reason : fault,
    };
    long os_error = 0;
    if (end == NET_END_UNSENT) curl_easy_getinfo(exchange->easy, CURLINFO_OS_ERRNO, &os_error);
    answer.os_error = (int)os_error;
    curl_easy_getinfo(exchange->easy, CURLINFO_REDIRECT_URL, &location);
    answer.location = location;
    curl_multi_remove_handle(client->multi, exchange->easy);
    client->options.done(client->options.context, &answer);
    leave(exchange);
}

/* A coding that libcurl does not know is seldom one: some servers write a charset there. Later
 * answers of such a server are taken as they come. */
static void note_coding(struct net_exchange *exchange) {
    static const char *const known[] = {"gzip", "x-gzip", "deflate", "br", "zstd", "compress"};
    struct str value;
    if (!net_exchange_header(exchange, "content-encoding", 0, &value)) return;
    value = str_trim(value);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (value.bytes >= strlen(known[i]) &&
            strncasecmp(value.at, known[i], strlen(known[i])) == 0)
            return;
    exchange->client->options.unpacks = false;
}

static void finish_by_libcurl(struct net_exchange *exchange, CURLcode code) {
    if (code == CURLE_BAD_CONTENT_ENCODING) note_coding(exchange);
    if (exchange->is_too_long)
        finish(exchange, NET_END_TOO_LONG, "sent an answer that is too long", CURLE_OK);
    else if (exchange->was_stopped)
        finish(exchange, NET_END_STOPPED, "sent a stream that cannot be read", CURLE_OK);
    else if (code == CURLE_OK)
        finish(exchange, NET_END_WHOLE, "", code);
    else if (exchange->was_lost)
        finish(exchange, NET_END_BROKEN, "closed the connection without an answer", CURLE_OK);
    else if (code == CURLE_BAD_CONTENT_ENCODING)
        finish(exchange, NET_END_BROKEN, "packed its answer in a way that cannot be read", code);
    else if (exchange->is_sent)
        finish(exchange, NET_END_BROKEN, "broke the exchange off", code);
    else if (code == CURLE_OPERATION_TIMEDOUT)
        finish(exchange, NET_END_UNSENT, "did not take a connection in time", code);
    else
        finish(exchange,
               code == CURLE_PEER_FAILED_VERIFICATION ? NET_END_UNTRUSTED : NET_END_UNSENT,
               "cannot be reached", code);
}

static void check_clocks(struct net_client *client) {
    int64_t now_ns = clock_monotonic_ns();
    if (now_ns - client->checked_ns < CLOCK_MS * NS_PER_MS) return;
    client->checked_ns = now_ns;
    for (uint32_t i = 0; i < client->options.exchanges_max; i++) {
        struct net_exchange *exchange = &client->exchanges[i];
        const char *what = exchange->is_busy ? exchange_overdue(exchange, now_ns) : NULL;
        if (what) finish(exchange, NET_END_TIMEOUT, what, CURLE_OK);
    }
}

void net_client_poll(struct net_client *client, int timeout_ms) {
    int running = 0, left = 0;
    bool ended_one = false;
    if (curl_multi_perform(client->multi, &running) != CURLM_OK) no_memory();
    for (CURLMsg *message; (message = curl_multi_info_read(client->multi, &left));) {
        struct net_exchange *exchange = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&exchange);
        finish_by_libcurl(exchange, code);
        ended_one = true;
    }
    check_clocks(client);
    if (!ended_one) curl_multi_poll(client->multi, NULL, 0, clock_wait_ms(timeout_ms), NULL);
}

void net_client_wake(struct net_client *client) {
    curl_multi_wakeup(client->multi);
}

/* --- opening and closing --- */

enum err net_client_open(struct net_client **ret_client, const struct net_client_options *options,
                         struct error *error) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(error, ERR_IO, "libcurl does not start");
    struct net_client *client = mem_new(1, sizeof *client);
    client->options = *options;
    client->options.key = NULL;
    client->exchanges = mem_new(options->exchanges_max, sizeof *client->exchanges);
    client->multi = curl_multi_init();
    if (!client->multi) no_memory();
    curl_multi_setopt(client->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    /* A redirect leaves an idle connection behind at the first server. */
    curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, 2L * (long)options->exchanges_max);
    for (uint32_t i = 0; i < options->exchanges_max; i++) {
        buf_init(&client->exchanges[i].in, options->text_bytes_max);
        buf_init(&client->exchanges[i].out, BUF_UNLIMITED);
        if (options->wipes) (void)buf_reserve(&client->exchanges[i].in, options->text_bytes_max);
    }
    net_client_set_key(client, options->key);
    *ret_client = client;
    return OK;
}

static void forget_key(struct net_client *client) {
    if (client->key_line) explicit_bzero(client->key_line, strlen(client->key_line));
    free(client->key_line);
    client->key_line = NULL;
}

void net_client_set_key(struct net_client *client, const char *key) {
    forget_key(client);
    if (key && asprintf(&client->key_line, "Authorization: Bearer %s", key) < 0) no_memory();
}

void net_client_close(struct net_client *client) {
    if (!client) return;
    for (uint32_t i = 0; i < client->options.exchanges_max; i++) {
        struct net_exchange *exchange = &client->exchanges[i];
        if (exchange->is_busy) net_client_abort(client, exchange);
        if (exchange->easy) curl_easy_cleanup(exchange->easy);
        buf_release(&exchange->in);
        buf_release(&exchange->out);
    }
    curl_multi_cleanup(client->multi);
    forget_key(client);
    free(client->exchanges);
    free(client);
    curl_global_cleanup();
}
