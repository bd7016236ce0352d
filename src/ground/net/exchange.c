/* SPDX-License-Identifier: Apache-2.0 */
#include "net/exchange.h"

#include "base/clock.h"
#include "base/no_memory.h"
#include "net/net_internal.h"

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
/* libcurl rounds down: a connection that idled for less than 4 s is used again. Common servers
 * close connections after 5 s, and a request at that moment is lost. */
#define KEPT_S 3L

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
    const struct net_client_options *options = exchange->options;
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
    const struct net_client_options *options = exchange->options;
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

/* --- its options for libcurl --- */

static void add_line(struct net_exchange *exchange, const char *line) {
    struct curl_slist *longer = curl_slist_append(exchange->head, line);
    if (!longer) no_memory();
    exchange->head = longer;
}

static void add_lines(struct net_exchange *exchange, const char *const *lines) {
    while (lines && *lines) add_line(exchange, *lines++);
}

/* An option that libcurl does not take is a bug, or no memory. */
#define SET(option, value)                                                                         \
    do {                                                                                           \
        if (curl_easy_setopt(easy, option, value) != CURLE_OK) no_memory();                        \
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
    if (!exchange->options->may_connect) return;
    SET(CURLOPT_OPENSOCKETFUNCTION, on_socket);
    SET(CURLOPT_OPENSOCKETDATA, exchange);
}

static void set_connection(struct net_exchange *exchange) {
    const struct net_client_options *options = exchange->options;
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

static void set_request(struct net_exchange *exchange, const struct net_request *request,
                        const char *key_line) {
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
    add_lines(exchange, exchange->options->headers);
    add_lines(exchange, request->headers);
    if (request->sends_key && key_line) add_line(exchange, key_line);
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

/* --- its life --- */

void exchange_begin(struct net_exchange *exchange, const struct net_request *request,
                    const char *key_line) {
    if (!exchange->easy) exchange->easy = curl_easy_init();
    if (!exchange->easy) no_memory();
    *exchange = (struct net_exchange){.client = exchange->client,
                                      .options = exchange->options,
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
    set_request(exchange, request, key_line);
}

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

void exchange_end(struct net_exchange *exchange) {
    for (struct curl_slist *line = exchange->head; line; line = line->next)
        explicit_bzero(line->data, strlen(line->data));
    curl_slist_free_all(exchange->head);
    exchange->head = NULL;
    if (exchange->options->wipes)
        wipe(&exchange->in);
    else
        shrink(&exchange->in);
    shrink(&exchange->out);
    exchange->is_busy = false;
}

static bool is_over(int64_t since_ns, int64_t limit_ms, int64_t now_ns) {
    return limit_ms > 0 && now_ns - since_ns > limit_ms * NS_PER_MS;
}

const char *exchange_overdue(const struct net_exchange *exchange, int64_t now_ns) {
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
