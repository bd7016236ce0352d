/* SPDX-License-Identifier: Apache-2.0 */
#include "net/client.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NS_PER_MS 1000000
#define HEAD_BYTES_MAX ((size_t)256 << 10)
#define BODY_BYTES_KEPT ((size_t)64 << 10) /* of a buffer between exchanges */
#define CLOCK_MS 100                       /* between looks at the time-outs */

struct net_exchange {
    struct net_client *http;
    CURL *easy;
    void *owner;
    bool is_busy;
    bool wants_stream, streams;
    bool is_sent;
    size_t head_bytes;
    int64_t first_byte_ms, stall_ms;
    int64_t sent_ns, first_ns, last_ns; /* 0: not yet */
    int64_t retry_after_ms;
    bool says_ms; /* retry-after-ms came, which is the finer one */
    bool was_stopped;
    bool is_too_long;
    struct buf out, in;
    char reason[CURL_ERROR_SIZE];
};

struct net_client {
    struct net_client_options options;
    CURLM *multi;
    struct curl_slist *get_head, *post_head;
    struct net_exchange *exchanges; /* (exchanges_max) */
    uint32_t busy_count;
    int64_t looked_ns;
};

int64_t net_retry_after_ms(struct str name, struct str value, int64_t now_unix_s) {
    char date[64];
    int64_t number;
    bool is_ms = name.bytes == 14 && strncasecmp(name.at, "retry-after-ms", 14) == 0;
    if (!is_ms && !(name.bytes == 11 && strncasecmp(name.at, "retry-after", 11) == 0)) return -1;
    value = str_trim(value);
    if (str_to_i64(value, &number)) {
        if (number < 0 || number > INT64_MAX / 1000) return -1;
        return is_ms ? number : number * 1000;
    }
    if (is_ms || value.bytes == 0 || value.bytes >= sizeof date) return -1;
    memcpy(date, value.at, value.bytes);
    date[value.bytes] = '\0';
    time_t at = curl_getdate(date, NULL);
    if (at == -1) return -1;
    return (int64_t)at > now_unix_s ? ((int64_t)at - now_unix_s) * 1000 : 0;
}

/* --- callbacks of libcurl --- */

static int on_connected(void *user, char *peer_address, char *own_address, int peer_port,
                        int own_port) {
    struct net_exchange *exchange = user;
    (void)peer_address;
    (void)own_address;
    (void)peer_port;
    (void)own_port;
    exchange->is_sent = true;
    exchange->sent_ns = clock_monotonic_ns();
    return CURL_PREREQFUNC_OK;
}

static void note_bytes(struct net_exchange *exchange) {
    exchange->last_ns = clock_monotonic_ns();
    if (exchange->first_ns == 0) exchange->first_ns = exchange->last_ns;
}

static size_t on_head(char *bytes, size_t size, size_t count, void *user) {
    struct net_exchange *exchange = user;
    struct str line = {bytes, size * count};
    note_bytes(exchange);
    exchange->head_bytes += line.bytes;
    if (exchange->head_bytes > HEAD_BYTES_MAX) {
        exchange->is_too_long = true;
        return 0;
    }
    size_t colon = str_find_byte(line, ':', 0);
    if (colon == SIZE_MAX) return line.bytes;
    struct str name = {line.at, colon};
    int64_t after_ms = net_retry_after_ms(name, str_skip(line, colon + 1), clock_unix_s());
    bool is_finer = name.bytes == strlen("retry-after-ms");
    if (after_ms >= 0 && (is_finer || !exchange->says_ms)) {
        exchange->retry_after_ms = after_ms;
        exchange->says_ms = is_finer;
    }
    return line.bytes;
}

/* Whether what comes is an event stream, known once its head is there. */
static bool is_stream(const struct net_exchange *exchange) {
    char *type = NULL;
    long status = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(exchange->easy, CURLINFO_CONTENT_TYPE, &type);
    return exchange->wants_stream && status >= 200 && status < 300 && type &&
           strncasecmp(type, "text/event-stream", 17) == 0;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *user) {
    struct net_exchange *exchange = user;
    const struct net_client_options *options = &exchange->http->options;
    struct str piece = {bytes, size * count};
    note_bytes(exchange);
    if (exchange->in.bytes == 0 && !exchange->streams) exchange->streams = is_stream(exchange);
    if (exchange->streams) {
        if (options->bytes(options->context, exchange->owner, piece)) return piece.bytes;
        exchange->was_stopped = true;
        return 0;
    }
    buf_add_str(&exchange->in, piece);
    exchange->is_too_long = exchange->in.overflowed;
    return exchange->is_too_long ? 0 : piece.bytes;
}

/* --- starting and ending --- */

static void set_options(struct net_exchange *exchange, const struct net_request *request) {
    struct net_client *http = exchange->http;
    CURL *easy = exchange->easy;
    curl_easy_reset(easy);
    curl_easy_setopt(easy, CURLOPT_URL, request->url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "quern/" QUERN_VERSION);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)http->options.connect_ms);
    if (!http->options.proxy_from_environment) curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->reason);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_connected);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_head);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
    if (!request->body.at) {
        curl_easy_setopt(easy, CURLOPT_HTTPHEADER, http->get_head);
        return;
    }
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, http->post_head);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, exchange->out.at);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)exchange->out.bytes);
}

struct net_exchange *net_client_start(struct net_client *http, const struct net_request *request) {
    struct net_exchange *exchange = http->exchanges;
    assert(http->busy_count < http->options.exchanges_max);
    while (exchange->is_busy) exchange++;
    if (!exchange->easy) exchange->easy = curl_easy_init();
    if (!exchange->easy) abort();
    exchange->http = http;
    exchange->owner = request->owner;
    exchange->is_busy = true;
    exchange->wants_stream = request->is_stream;
    exchange->streams = exchange->is_sent = exchange->says_ms = false;
    exchange->was_stopped = exchange->is_too_long = false;
    exchange->head_bytes = 0;
    exchange->first_byte_ms = request->first_byte_ms;
    exchange->stall_ms = request->stall_ms;
    exchange->sent_ns = exchange->first_ns = exchange->last_ns = 0;
    exchange->retry_after_ms = -1;
    exchange->reason[0] = '\0';
    buf_clear(&exchange->out);
    buf_add_str(&exchange->out, request->body);
    set_options(exchange, request);
    http->busy_count++;
    if (curl_multi_add_handle(http->multi, exchange->easy) != CURLM_OK) abort();
    return exchange;
}

static void shrink(struct buf *buf) {
    if (buf->capacity > BODY_BYTES_KEPT) {
        size_t bytes_max = buf->bytes_max;
        buf_release(buf);
        buf_init(buf, bytes_max);
    }
    buf_clear(buf);
}

void net_client_abort(struct net_client *http, struct net_exchange *exchange) {
    assert(exchange->is_busy);
    curl_multi_remove_handle(http->multi, exchange->easy);
    shrink(&exchange->in);
    shrink(&exchange->out);
    exchange->is_busy = false;
    http->busy_count--;
}

/* Tells its owner, and is free again. */
static void finish(struct net_exchange *exchange, struct net_answer *answer) {
    struct net_client *http = exchange->http;
    long status = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    answer->owner = exchange->owner;
    answer->status = (int)status;
    answer->body = buf_str(&exchange->in);
    answer->retry_after_ms = exchange->retry_after_ms;
    answer->sent_ns = exchange->sent_ns;
    answer->ended_ns = clock_monotonic_ns();
    curl_multi_remove_handle(http->multi, exchange->easy);
    http->options.done(http->options.context, answer);
    shrink(&exchange->in);
    shrink(&exchange->out);
    exchange->is_busy = false;
    http->busy_count--;
}

/* `what` is a constant. */
static void say(struct net_answer *answer, enum net_end end, const char *what, const char *why) {
    answer->end = end;
    answer->what = what;
    snprintf(answer->why, sizeof answer->why, "%.120s", why);
}

static void finish_curl(struct net_exchange *exchange, CURLcode code) {
    struct net_answer answer = {.end = NET_END_WHOLE, .what = ""};
    const char *why = *exchange->reason ? exchange->reason : curl_easy_strerror(code);
    if (exchange->is_too_long)
        say(&answer, NET_END_TOO_LONG, "sent an answer that is too long", "");
    else if (exchange->was_stopped)
        say(&answer, NET_END_STOPPED, "sent a stream that cannot be read", "");
    else if (code == CURLE_OPERATION_TIMEDOUT && !exchange->is_sent)
        say(&answer, NET_END_UNSENT, "did not take a connection in time", "");
    else if (code != CURLE_OK && !exchange->is_sent)
        say(&answer, NET_END_UNSENT, "cannot be reached", why);
    else if (code != CURLE_OK)
        say(&answer, NET_END_BROKEN, "broke the exchange off", why);
    finish(exchange, &answer);
}

/* True when it took too long, and has been told so. */
static bool check_clock(struct net_exchange *exchange, int64_t now_ns) {
    struct net_answer answer = {.end = NET_END_WHOLE, .what = ""};
    if (!exchange->is_sent) return false; /* libcurl watches that */
    if (exchange->first_ns == 0) {
        if (now_ns - exchange->sent_ns > exchange->first_byte_ms * NS_PER_MS)
            say(&answer, NET_END_TIMEOUT, "did not begin its answer in time", "");
    } else if (now_ns - exchange->last_ns > exchange->stall_ms * NS_PER_MS) {
        say(&answer, NET_END_TIMEOUT, "stopped in the middle of its answer", "");
    } else if (!exchange->streams &&
               now_ns - exchange->first_ns > exchange->first_byte_ms * NS_PER_MS) {
        say(&answer, NET_END_TIMEOUT, "did not end its answer in time", "");
    }
    if (answer.end == NET_END_WHOLE) return false;
    finish(exchange, &answer);
    return true;
}

static void check_clocks(struct net_client *http) {
    int64_t now_ns = clock_monotonic_ns();
    if (now_ns - http->looked_ns < CLOCK_MS * (int64_t)NS_PER_MS) return;
    http->looked_ns = now_ns;
    for (uint32_t i = 0; i < http->options.exchanges_max; i++)
        if (http->exchanges[i].is_busy) (void)check_clock(&http->exchanges[i], now_ns);
}

void net_client_poll(struct net_client *http, int timeout_ms) {
    int running = 0, left = 0;
    if (curl_multi_perform(http->multi, &running) != CURLM_OK) abort();
    bool ended_one = false;
    for (CURLMsg *message; (message = curl_multi_info_read(http->multi, &left));) {
        struct net_exchange *exchange = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&exchange);
        finish_curl(exchange, code);
        ended_one = true;
    }
    check_clocks(http);
    if (!ended_one) curl_multi_poll(http->multi, NULL, 0, timeout_ms, NULL);
}

void net_client_wake(struct net_client *http) {
    curl_multi_wakeup(http->multi);
}

/* --- opening --- */

static struct curl_slist *add(struct curl_slist *list, const char *line) {
    struct curl_slist *longer = curl_slist_append(list, line);
    if (!longer) abort();
    return longer;
}

static struct curl_slist *make_head(const struct net_client_options *options, bool is_post) {
    struct curl_slist *list = add(NULL, "Accept: application/json, text/event-stream");
    if (is_post) {
        list = add(list, "Content-Type: application/json");
        list = add(list, "Expect:"); /* none: it would cost a round trip */
    }
    if (options->key) {
        char line[8192];
        int bytes = snprintf(line, sizeof line, "Authorization: Bearer %s", options->key);
        assert(bytes < (int)sizeof line);
        list = add(list, line);
        explicit_bzero(line, sizeof line);
    }
    return list;
}

enum err net_client_open(struct net_client **ret_http, const struct net_client_options *options,
                         struct error *error) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(error, ERR_IO, "libcurl does not start");
    struct net_client *http = mem_new(1, sizeof *http);
    http->options = *options;
    http->exchanges = calloc(options->exchanges_max, sizeof *http->exchanges);
    http->multi = curl_multi_init();
    if (!http->exchanges || !http->multi) abort();
    curl_multi_setopt(http->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)options->exchanges_max);
    for (uint32_t i = 0; i < options->exchanges_max; i++) {
        buf_init(&http->exchanges[i].in, options->answer_bytes_max);
        buf_init(&http->exchanges[i].out, BUF_UNLIMITED);
    }
    http->get_head = make_head(options, false);
    http->post_head = make_head(options, true);
    http->options.key = NULL;
    *ret_http = http;
    return OK;
}

static void wipe(struct curl_slist *list) {
    for (struct curl_slist *line = list; line; line = line->next)
        explicit_bzero(line->data, strlen(line->data));
    curl_slist_free_all(list);
}

void net_client_close(struct net_client *http) {
    if (!http) return;
    for (uint32_t i = 0; i < http->options.exchanges_max; i++) {
        struct net_exchange *exchange = &http->exchanges[i];
        if (exchange->is_busy) net_client_abort(http, exchange);
        if (exchange->easy) curl_easy_cleanup(exchange->easy);
        buf_release(&exchange->in);
        buf_release(&exchange->out);
    }
    curl_multi_cleanup(http->multi);
    wipe(http->get_head);
    wipe(http->post_head);
    free(http->exchanges);
    free(http);
    curl_global_cleanup();
}
