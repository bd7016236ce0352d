/* SPDX-License-Identifier: Apache-2.0 */
#include "net/client.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "net/file_body.h"
#include "net/net_internal.h"
#include "net/wait.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NS_PER_MS ((int64_t)1000000)
#define HEAD_BYTES_MAX ((size_t)256 << 10)
#define BODY_BYTES_KEPT ((size_t)64 << 10) /* the most that a buffer keeps between exchanges */
#define STREAM_BUFFER_BYTES (256L << 10)   /* for downloads: fewer calls per byte */
#define SLOW_S 60L
#define CLOCK_MS 100 /* between two checks of the time limits */
/* libcurl rounds down: a connection that idled for less than 4 s is used again. Common servers
 * close connections after 5 s, and a request at that moment is lost. */
#define KEPT_S 3L

struct net_exchange {
    struct net_client *client;
    CURL *easy;
    struct curl_slist *head;
    void *owner;
    enum net_stream stream;
    bool is_busy;
    bool goes_once; /* has a body that may not be repeated */
    bool is_sent, is_streamed, was_stopped, is_too_long;
    bool was_lost; /* its kept connection closed without a byte of an answer */
    size_t head_bytes;
    struct file_body file_body;
    int64_t first_byte_ms, stall_ms, text_ms;
    int64_t sent_ns, first_ns, last_ns; /* 0: not yet */
    struct buf out, in;
    char reason[CURL_ERROR_SIZE];
};

struct net_client {
    struct net_client_options options;
    char *key_line; /* NULL: no key */
    CURLM *multi;
    struct net_exchange *exchanges; /* (exchanges_max) */
    uint32_t busy_count;
    int64_t checked_ns;
};

/* --- callbacks of libcurl --- */

/* libcurl calls it each time before it sends the request. */
static int on_connected(void *user, char *peer_address, char *own_address, int peer_port,
                        int own_port) {
    struct net_exchange *exchange = user;
    (void)peer_address;
    (void)own_address;
    (void)peer_port;
    (void)own_port;
    exchange->was_lost = exchange->is_sent && exchange->goes_once;
    if (exchange->was_lost) return CURL_PREREQFUNC_ABORT;
    exchange->is_sent = true;
    exchange->sent_ns = clock_monotonic_ns();
    return CURL_PREREQFUNC_OK;
}

/* Opens the socket only if the caller allows the address that it will be connected to. */
static curl_socket_t on_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address) {
    struct net_exchange *exchange = user;
    const struct net_client_options *options = &exchange->client->options;
    if (purpose != CURLSOCKTYPE_IPCXN) return CURL_SOCKET_BAD;
    if (address->family != AF_INET && address->family != AF_INET6) return CURL_SOCKET_BAD;
    if (!options->may_connect(options->context, exchange->owner, &address->addr, address->addrlen))
        return CURL_SOCKET_BAD;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static void note_bytes(struct net_exchange *exchange) {
    exchange->last_ns = clock_monotonic_ns();
    if (exchange->first_ns == 0) exchange->first_ns = exchange->last_ns;
}

static size_t on_head(char *bytes, size_t size, size_t count, void *user) {
    struct net_exchange *exchange = user;
    (void)bytes;
    note_bytes(exchange);
    exchange->head_bytes += size * count;
    exchange->is_too_long = exchange->head_bytes > HEAD_BYTES_MAX;
    return exchange->is_too_long ? 0 : size * count;
}

/* Whether the answer goes to `bytes`; known once its head has come. */
static bool is_streamed(const struct net_exchange *exchange) {
    int status = net_exchange_status(exchange);
    char *type = NULL;
    switch (exchange->stream) {
    case NET_STREAM_NONE: return false;
    case NET_STREAM_BYTES: return status == 200 || status == 206;
    case NET_STREAM_EVENTS: break;
    }
    curl_easy_getinfo(exchange->easy, CURLINFO_CONTENT_TYPE, &type);
    return status / 100 == 2 && type && strncasecmp(type, "text/event-stream", 17) == 0;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *user) {
    struct net_exchange *exchange = user;
    const struct net_client_options *options = &exchange->client->options;
    struct str piece = {bytes, size * count};
    note_bytes(exchange);
    if (exchange->in.bytes == 0 && !exchange->is_streamed)
        exchange->is_streamed = is_streamed(exchange);
    if (exchange->is_streamed) {
        if (options->bytes(options->context, exchange->owner, piece)) return piece.bytes;
        exchange->was_stopped = true;
        return 0;
    }
    buf_add_str(&exchange->in, piece);
    exchange->is_too_long = exchange->in.overflowed;
    return exchange->is_too_long ? 0 : piece.bytes;
}

/* --- what an answer says --- */

int net_exchange_status(const struct net_exchange *exchange) {
    long status = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

bool net_exchange_header(const struct net_exchange *exchange, const char *name, size_t index,
                         struct str *ret_value) {
    struct curl_header *header;
    if (curl_easy_header(exchange->easy, name, index, CURLH_HEADER, -1, &header) != CURLHE_OK)
        return false;
    *ret_value = str_from(header->value);
    return true;
}

/* --- starting --- */

static void add_line(struct net_exchange *exchange, const char *line) {
    struct curl_slist *longer = curl_slist_append(exchange->head, line);
    if (!longer) abort();
    exchange->head = longer;
}

static void add_lines(struct net_exchange *exchange, const char *const *lines) {
    while (lines && *lines) add_line(exchange, *lines++);
}

/* An option that libcurl does not take is a bug, or no memory. */
#define SET(option, value)                                                                         \
    do {                                                                                           \
        if (curl_easy_setopt(easy, option, value) != CURLE_OK) abort();                            \
    } while (0)

static void set_callbacks(struct net_exchange *exchange) {
    CURL *easy = exchange->easy;
    SET(CURLOPT_ERRORBUFFER, exchange->reason);
    SET(CURLOPT_PRIVATE, exchange);
    SET(CURLOPT_PREREQFUNCTION, on_connected);
    SET(CURLOPT_PREREQDATA, exchange);
    SET(CURLOPT_HEADERFUNCTION, on_head);
    SET(CURLOPT_HEADERDATA, exchange);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, exchange);
    if (!exchange->client->options.may_connect) return;
    SET(CURLOPT_OPENSOCKETFUNCTION, on_socket);
    SET(CURLOPT_OPENSOCKETDATA, exchange);
}

static void set_connection(struct net_exchange *exchange) {
    const struct net_client_options *options = &exchange->client->options;
    CURL *easy = exchange->easy;
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_MAXAGE_CONN, KEPT_S);
    SET(CURLOPT_USERAGENT, "quern/" QUERN_VERSION);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)options->connect_ms);
    /* A name server that does not answer must not hold up the end of an exchange. */
    SET(CURLOPT_QUICK_EXIT, 1L);
    if (!options->proxy_from_environment) SET(CURLOPT_PROXY, "");
    if (options->unpacks) {
        /* libcurl unpacks only with this option, which would also ask for packing: the line takes
         * that header away. */
        SET(CURLOPT_ACCEPT_ENCODING, "");
        add_line(exchange, "Accept-Encoding:");
    }
    if (options->certificates) SET(CURLOPT_CAINFO, options->certificates);
    if (options->slow_bytes_per_s == 0) return;
    SET(CURLOPT_LOW_SPEED_LIMIT, (long)options->slow_bytes_per_s);
    SET(CURLOPT_LOW_SPEED_TIME, SLOW_S);
}

static void set_file(struct net_exchange *exchange, const struct net_file *file) {
    CURL *easy = exchange->easy;
    char line[200];
    if (!file->post_type) {
        SET(CURLOPT_UPLOAD, 1L);
        SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)file_body_bytes(file));
        return;
    }
    snprintf(line, sizeof line, "Content-Type: %s", file->post_type);
    add_line(exchange, line);
    SET(CURLOPT_POST, 1L);
    SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)file_body_bytes(file));
}

static void set_request(struct net_exchange *exchange, const struct net_request *request) {
    CURL *easy = exchange->easy;
    if (request->checked_url)
        SET(CURLOPT_CURLU, request->checked_url->handle);
    else
        SET(CURLOPT_URL, request->url);
    if (request->whole_ms > 0) SET(CURLOPT_TIMEOUT_MS, (long)request->whole_ms);
    if (request->stream == NET_STREAM_BYTES) SET(CURLOPT_BUFFERSIZE, STREAM_BUFFER_BYTES);
    if (request->range_to > 0) {
        char range[64];
        snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, request->range_from,
                 request->range_to - 1);
        SET(CURLOPT_RANGE, range);
    }
    add_lines(exchange, exchange->client->options.headers);
    add_lines(exchange, request->headers);
    if (request->sends_key && exchange->client->key_line)
        add_line(exchange, exchange->client->key_line);
    if (request->body.at) {
        add_line(exchange, "Content-Type: application/json");
        add_line(exchange, "Expect:"); /* waiting for 100 Continue would cost a round trip */
        SET(CURLOPT_POSTFIELDS, exchange->out.at);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)exchange->out.bytes);
    }
    if (request->is_delete) SET(CURLOPT_CUSTOMREQUEST, "DELETE");
    if (request->file) {
        add_line(exchange, "Expect:");
        set_file(exchange, request->file);
        SET(CURLOPT_READFUNCTION, file_body_read);
        SET(CURLOPT_READDATA, &exchange->file_body);
        SET(CURLOPT_SEEKFUNCTION, file_body_seek);
        SET(CURLOPT_SEEKDATA, &exchange->file_body);
    }
    SET(CURLOPT_HTTPHEADER, exchange->head);
}

struct net_exchange *net_client_start(struct net_client *client,
                                      const struct net_request *request) {
    struct net_exchange *exchange = client->exchanges;
    assert(client->busy_count < client->options.exchanges_max);
    while (exchange->is_busy) exchange++;
    if (!exchange->easy) exchange->easy = curl_easy_init();
    if (!exchange->easy) abort();
    *exchange = (struct net_exchange){.client = client,
                                      .easy = exchange->easy,
                                      .owner = request->owner,
                                      .stream = request->stream,
                                      .file_body = {.file = request->file},
                                      .is_busy = true,
                                      .goes_once = (request->body.at || request->file) &&
                                                   !request->may_repeat,
                                      .first_byte_ms = request->first_byte_ms,
                                      .stall_ms = request->stall_ms,
                                      .text_ms = request->text_ms,
                                      .out = exchange->out,
                                      .in = exchange->in};
    buf_add_str(&exchange->out, request->body);
    curl_easy_reset(exchange->easy);
    set_callbacks(exchange);
    set_connection(exchange);
    set_request(exchange, request);
    client->busy_count++;
    if (curl_multi_add_handle(client->multi, exchange->easy) != CURLM_OK) abort();
    return exchange;
}

/* --- ending --- */

static void shrink(struct buf *buf) {
    if (buf->capacity > BODY_BYTES_KEPT) {
        size_t bytes_max = buf->bytes_max;
        buf_release(buf);
        buf_init(buf, bytes_max);
    }
    buf_clear(buf);
}

static void wipe(struct buf *buf) {
    if (buf->at) explicit_bzero(buf->at, buf->capacity);
    buf_clear(buf);
}

/* Frees the exchange's place, once libcurl has released the exchange. */
static void clear(struct net_exchange *exchange) {
    for (struct curl_slist *line = exchange->head; line; line = line->next)
        explicit_bzero(line->data, strlen(line->data));
    curl_slist_free_all(exchange->head);
    exchange->head = NULL;
    if (exchange->client->options.wipes)
        wipe(&exchange->in);
    else
        shrink(&exchange->in);
    shrink(&exchange->out);
    exchange->is_busy = false;
    exchange->client->busy_count--;
}

void net_client_abort(struct net_client *client, struct net_exchange *exchange) {
    assert(exchange->is_busy);
    curl_multi_remove_handle(client->multi, exchange->easy);
    clear(exchange);
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
    clear(exchange);
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

static bool is_over(int64_t since_ns, int64_t limit_ms, int64_t now_ns) {
    return limit_ms > 0 && now_ns - since_ns > limit_ms * NS_PER_MS;
}

/* The name of the wait that took too long; NULL if none did. libcurl itself watches connecting and
 * `whole_ms`. */
static const char *find_overdue(const struct net_exchange *exchange, int64_t now_ns) {
    if (!exchange->is_sent) return NULL;
    if (exchange->first_ns == 0)
        return is_over(exchange->sent_ns, exchange->first_byte_ms, now_ns)
                   ? "did not begin its answer in time"
                   : NULL;
    if (is_over(exchange->last_ns, exchange->stall_ms, now_ns))
        return "stopped in the middle of its answer";
    if (!exchange->is_streamed && is_over(exchange->first_ns, exchange->text_ms, now_ns))
        return "did not end its answer in time";
    return NULL;
}

static void check_clocks(struct net_client *client) {
    int64_t now_ns = clock_monotonic_ns();
    if (now_ns - client->checked_ns < CLOCK_MS * NS_PER_MS) return;
    client->checked_ns = now_ns;
    for (uint32_t i = 0; i < client->options.exchanges_max; i++) {
        struct net_exchange *exchange = &client->exchanges[i];
        const char *what = exchange->is_busy ? find_overdue(exchange, now_ns) : NULL;
        if (what) finish(exchange, NET_END_TIMEOUT, what, CURLE_OK);
    }
}

void net_client_poll(struct net_client *client, int timeout_ms) {
    int running = 0, left = 0;
    bool ended_one = false;
    if (curl_multi_perform(client->multi, &running) != CURLM_OK) abort();
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
    if (!client->multi) abort();
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
    if (key && asprintf(&client->key_line, "Authorization: Bearer %s", key) < 0) abort();
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
