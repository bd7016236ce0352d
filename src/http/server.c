/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http.h"

#include "base/clock.h"
#include "base/ring.h"
#include "http/request.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define WORKERS_MAX 64
#define CONNECTION_MEMORY_BYTES ((size_t)128 << 10)
#define DISCARD_BYTES_MAX ((uint64_t)64 << 10)
#define CLOSE_WAIT_MS 10000

struct http_server {
    struct http_options options;
    struct gate *gate;
    struct MHD_Daemon *daemon;
    struct ring *work; /* of struct http_request *: whole requests for handlers */
    pthread_t workers[WORKERS_MAX];
    uint32_t worker_count;
    pthread_mutex_t lock; /* guards requests, and connection → request */
    pthread_cond_t idle;
    uint32_t requests;
    atomic_uint_fast64_t body_bytes; /* of all bodies kept in memory */
    atomic_uint_fast64_t keys_missing_total;
    atomic_uint_fast64_t keys_wrong_total;
    atomic_uint_fast64_t keys_scope_total;
    atomic_uint_fast64_t keys_rate_total;
};

/* --- the beginning of a request, on the connection thread --- */

static enum MHD_Result keep_header(void *context, enum MHD_ValueKind kind, const char *name,
                                   size_t name_bytes, const char *value, size_t value_bytes) {
    struct http_request *request = context;
    (void)kind;
    if (request->header_count == REQUEST_HEADERS_MAX) return MHD_NO;
    struct route_pair *pair = &request->headers[request->header_count];
    pair->name = arena_copy(&request->arena, (struct str){name, name_bytes});
    pair->value = arena_copy(&request->arena, (struct str){value, value_bytes});
    if (pair->name.at && pair->value.at) request->header_count++;
    return MHD_YES;
}

/* A proxy's or a client's own id goes through to the logs and the answer when it is harmless
 * there. */
static void take_client_id(struct http_request *request) {
    struct str id = http_request_header(request, "x-request-id");
    if (id.bytes == 0 || id.bytes > 64) return;
    for (size_t i = 0; i < id.bytes; i++) {
        char c = id.at[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!plain && c != '.' && c != '_' && c != '-') return;
    }
    memcpy(request->id, id.at, id.bytes);
    request->id[id.bytes] = '\0';
}

/* OPTIONS asks what may be done with a path; only a path that is there has an answer. */
static void answer_options(struct http_request *request) {
    char allow[sizeof request->match.allow + 16];
    bool reads = strstr(request->match.allow, "GET") != NULL;
    snprintf(allow, sizeof allow, "%s%s, OPTIONS", request->match.allow, reads ? ", HEAD" : "");
    const struct http_header header = {"Allow", allow};
    http_answer(request,
                &(struct http_answer){.status = 204, .headers = &header, .header_count = 1});
}

/* True when the request names a row its client may use; else it has been answered. */
static bool find_route(struct http_request *request) {
    struct http_server *server = request->server;
    size_t question = str_find_byte(request->target, '?', 0);
    struct str path = {request->target.at, question == SIZE_MAX ? request->target.bytes : question};
    enum route_found found = route_find(server->options.routes, server->options.route_count,
                                        request->method, path, &request->arena, &request->match);
    request->has_route = found == ROUTE_FOUND;
    if (found == ROUTE_FOUND) {
        if (question != SIZE_MAX)
            request->query_count = route_query(str_skip(request->target, question + 1),
                                               &request->arena, request->query);
        return true;
    }
    if (found == ROUTE_NO_METHOD && strcmp(request->method, "OPTIONS") == 0) {
        answer_options(request);
        return false;
    }
    char text[400];
    snprintf(text, sizeof text, "Unknown request URL: %s %.*s. Check the URL for typos",
             request->method, (int)(path.bytes < 200 ? path.bytes : 200), path.at);
    if (found == ROUTE_NO_METHOD)
        snprintf(text, sizeof text, "Method %s is not allowed for %.*s; allowed: %s",
                 request->method, (int)(path.bytes < 200 ? path.bytes : 200), path.at,
                 request->match.allow);
    if (found == ROUTE_MALFORMED)
        snprintf(text, sizeof text, "The request path is not properly percent-encoded UTF-8");
    http_request_fail(request,
                      found == ROUTE_NO_PATH     ? 404
                      : found == ROUTE_NO_METHOD ? 405
                                                 : 400,
                      text, NULL);
    return false;
}

/* Nobody needs the key after it has been checked: neither a handler nor a core file. */
static void forget_key(struct http_request *request) {
    struct str key = http_request_header(request, "authorization");
    if (key.bytes > 0) explicit_bzero((char *)(uintptr_t)key.at, key.bytes);
}

static bool check_scope(struct http_request *request) {
    enum http_scope scope = request->match.route->scope;
    char text[120];
    if (key_caller_has(&request->caller, scope)) return true;
    atomic_fetch_add(&request->server->keys_scope_total, 1);
    snprintf(text, sizeof text, "This API key may not do that: it lacks the scope '%s'",
             key_scope_name(scope));
    http_request_fail(request, 403, text, "missing_scope");
    return false;
}

static bool check_key(struct http_request *request) {
    struct http_server *server = request->server;
    uint32_t retry_s = 1;
    if (request->match.route->scope == HTTP_SCOPE_OPEN) return true;
    enum key_answer answer =
        key_check(server->options.keys, http_request_header(request, "authorization"),
                  &request->caller, &retry_s);
    forget_key(request);
    switch (answer) {
    case KEY_GOOD: return check_scope(request);
    case KEY_MISSING:
        atomic_fetch_add(&server->keys_missing_total, 1);
        http_request_fail(request, 401,
                          "No API key was given: send it as 'Authorization: Bearer KEY'", NULL);
        return false;
    case KEY_LATER:
        atomic_fetch_add(&server->keys_rate_total, 1);
        http_request_fail_later(request, "This API key has used up its requests per minute",
                                retry_s);
        return false;
    case KEY_WRONG: break;
    }
    atomic_fetch_add(&server->keys_wrong_total, 1);
    http_request_fail(request, 401, "The API key given is not a valid one", "invalid_api_key");
    return false;
}

static void fail_too_large(struct http_request *request) {
    char text[120];
    snprintf(text, sizeof text, "The request body is larger than the limit of %" PRIu64 " bytes",
             request->body_bytes_max);
    http_request_fail(request, 413, text, NULL);
}

static bool part_begin(void *context, const struct multipart_part *part) {
    struct http_request *request = context;
    request->match.route->upload->part(request->upload, request, part);
    return !http_request_is_answered(request);
}

static bool part_data(void *context, struct str bytes) {
    struct http_request *request = context;
    request->match.route->upload->data(request->upload, request, bytes);
    return !http_request_is_answered(request);
}

static bool part_end(void *context) {
    struct http_request *request = context;
    request->match.route->upload->part_end(request->upload, request);
    return !http_request_is_answered(request);
}

static void begin_upload(struct http_request *request) {
    struct error error = {0};
    struct multipart_events events = {request, part_begin, part_data, part_end};
    request->multipart = calloc(1, sizeof *request->multipart);
    if (!request->multipart) abort();
    if (multipart_init(request->multipart, http_request_header(request, "content-type"), &events,
                       &error) != OK) {
        http_request_fail(request, 400, error.text, NULL);
        return;
    }
    const struct http_upload *upload = request->match.route->upload;
    request->upload = upload->begin(request->server->options.context, request);
    request->upload_begun = true;
}

/* Everything that is known once the headers are. May answer. */
static void begin_request(struct http_request *request, struct MHD_Connection *mhd,
                          const char *method) {
    const struct http_options *options = &request->server->options;
    request->mhd = mhd;
    request->stage = REQUEST_BODY;
    request->method = arena_copy(&request->arena, str_from(method)).at;
    request->body_bytes_max = options->body_bytes_max;
    buf_init(&request->body, (size_t)options->body_bytes_max);
    buf_init(&request->stream, (size_t)options->stream_bytes_max);
    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, keep_header, request);
    take_client_id(request);
    if (!find_route(request) || !check_key(request)) return;
    if (request->match.route->upload) request->body_bytes_max = options->upload_bytes_max;
    uint64_t bytes;
    if (str_to_u64(http_request_header(request, "content-length"), &bytes) &&
        bytes > request->body_bytes_max)
        fail_too_large(request);
    else if (request->match.route->upload)
        begin_upload(request);
}

/* --- its body --- */

/* Many large bodies at once must not fill the memory: the one that would pass the sum is refused.
 */
static void keep_body(struct http_request *request, struct str bytes) {
    struct http_server *server = request->server;
    request->body_kept += bytes.bytes;
    uint64_t before = atomic_fetch_add(&server->body_bytes, bytes.bytes);
    if (before + bytes.bytes > server->options.body_bytes_total_max)
        http_request_fail(request, 503, "Too many large request bodies are being received", NULL);
    else
        buf_add_str(&request->body, bytes);
}

static void take_body(struct http_request *request, struct str bytes) {
    struct error error = {0};
    request->body_seen += bytes.bytes;
    if (request->stage == REQUEST_DISCARD) return;
    if (request->body_seen > request->body_bytes_max) {
        fail_too_large(request);
    } else if (!request->multipart) {
        keep_body(request, bytes);
    } else {
        enum err err = multipart_feed(request->multipart, bytes, &error);
        if (err != OK && err != ERR_CANCELLED) http_request_fail(request, 400, error.text, NULL);
    }
}

/* The body that is still to come is small and sure to come: reading it keeps the connection. */
static bool is_cheap_to_discard(const struct http_request *request) {
    uint64_t bytes = 0;
    if (http_request_header(request, "transfer-encoding").bytes > 0 ||
        http_request_header(request, "expect").bytes > 0)
        return false;
    str_to_u64(http_request_header(request, "content-length"), &bytes);
    return bytes <= DISCARD_BYTES_MAX && request->body_seen == 0;
}

/* After a step that may have answered before the body was complete. libmicrohttpd can answer only
 * at the end of a body, so what cannot wait for it goes through the gate, which cuts the
 * connection. */
static enum MHD_Result settle_early_answer(struct http_request *request) {
    if (request->stage == REQUEST_DISCARD || !http_request_is_answered(request)) return MHD_YES;
    if (is_cheap_to_discard(request)) {
        request->stage = REQUEST_DISCARD;
        return MHD_YES;
    }
    struct buf message;
    buf_init(&message, 65536);
    http_answer_write_message(request, &message);
    gate_refuse(request->connection, buf_str(&message));
    buf_release(&message);
    return MHD_NO;
}

/* The body is complete: the request goes to a worker thread, the connection sleeps. */
static void dispatch(struct http_request *request) {
    request->stage = REQUEST_WHOLE;
    http_request_hold(request);
    pthread_mutex_lock(&request->lock);
    request->dispatched = true;
    request->suspended = true;
    MHD_suspend_connection(request->mhd);
    pthread_mutex_unlock(&request->lock);
    /* A connection has one request at a time and the ring has room for every connection. */
    bool put = ring_try_put(request->server->work, &request);
    assert(put);
    (void)put;
}

/* libmicrohttpd calls this once when the headers are there, for each piece of the body, at its end,
 * and once more after a resume. */
static enum MHD_Result handle(void *context, struct MHD_Connection *mhd, const char *url,
                              const char *method, const char *version, const char *bytes,
                              size_t *byte_count, void **request_context) {
    struct http_request *request = *request_context;
    (void)context, (void)url, (void)version;
    if (!request) return MHD_NO;
    if (request->stage == REQUEST_NEW) {
        begin_request(request, mhd, method);
        return settle_early_answer(request);
    }
    if (*byte_count > 0) {
        take_body(request, (struct str){bytes, *byte_count});
        *byte_count = 0;
        return settle_early_answer(request);
    }
    if (request->stage == REQUEST_BODY) {
        struct error error = {0};
        if (request->multipart && multipart_end(request->multipart, &error) != OK)
            http_request_fail(request, 400, error.text, NULL);
        else
            dispatch(request);
    }
    return http_request_is_answered(request) ? http_answer_queue(request) : MHD_YES;
}

/* --- the ends of requests and connections --- */

static void *request_started(void *context, const char *target, struct MHD_Connection *mhd) {
    struct http_server *server = context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct gate_connection *connection = info->socket_context;
    struct http_request *request = http_request_new(server, connection, target);
    pthread_mutex_lock(&server->lock);
    server->requests++;
    gate_set_user(connection, request);
    pthread_mutex_unlock(&server->lock);
    return request;
}

static void request_completed(void *context, struct MHD_Connection *mhd, void **request_context,
                              enum MHD_RequestTerminationCode code) {
    struct http_server *server = context;
    struct http_request *request = *request_context;
    (void)mhd, (void)code;
    if (!request) return;
    *request_context = NULL;
    pthread_mutex_lock(&request->lock);
    request->over = true;
    int status = request->answered ? request->status : 0;
    pthread_mutex_unlock(&request->lock);
    gate_request_done(request->connection);
    if (server->options.done)
        server->options.done(
            server->options.context,
            &(struct http_done){.request_id = request->id,
                                .method = request->method ? request->method : "",
                                .route_index =
                                    request->has_route ? request->match.route_index : SIZE_MAX,
                                .status = status,
                                .duration_ns = clock_monotonic_ns() - request->started_ns,
                                .body_bytes = request->body_seen});
    pthread_mutex_lock(&server->lock);
    gate_set_user(request->connection, NULL);
    pthread_mutex_unlock(&server->lock);
    http_request_drop(request);
}

void http_server_forget(struct http_server *server, const struct http_request *request) {
    atomic_fetch_sub(&server->body_bytes, request->body_kept);
    pthread_mutex_lock(&server->lock);
    if (--server->requests == 0) pthread_cond_broadcast(&server->idle);
    pthread_mutex_unlock(&server->lock);
}

/* A connection is known to libmicrohttpd by an address of our own making: it holds the pointer to
 * the gate's connection. */
static struct sockaddr_un connection_address(struct gate_connection *connection) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, &connection, sizeof connection);
    return address;
}

static void connection_notified(void *context, struct MHD_Connection *mhd, void **socket_context,
                                enum MHD_ConnectionNotificationCode code) {
    (void)context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        const struct sockaddr_un *address = (const struct sockaddr_un *)info->client_addr;
        struct gate_connection *connection;
        memcpy(&connection, address->sun_path, sizeof connection);
        *socket_context = connection;
    } else if (*socket_context) {
        gate_drop(*socket_context);
        *socket_context = NULL;
    }
}

static bool connection_added(void *context, struct gate_connection *connection, int fd) {
    struct http_server *server = context;
    struct sockaddr_un address = connection_address(connection);
    return MHD_add_connection(server->daemon, fd, (const struct sockaddr *)&address,
                              sizeof address) == MHD_YES;
}

/* Tells the request that is on the connection, if there is one. */
static void tell(struct http_server *server, struct gate_connection *connection,
                 void (*news)(struct http_request *request)) {
    pthread_mutex_lock(&server->lock);
    struct http_request *request = gate_user(connection);
    if (request) http_request_hold(request);
    pthread_mutex_unlock(&server->lock);
    if (!request) return;
    news(request);
    http_request_drop(request);
}

static void connection_gone(void *context, struct gate_connection *connection) {
    tell(context, connection, http_request_tell_gone);
}

static void connection_quiet(void *context, struct gate_connection *connection) {
    tell(context, connection, http_request_tell_quiet);
}

/* --- workers --- */

static void *worker_main(void *context) {
    struct http_server *server = context;
    struct http_request *request;
    while (ring_take(server->work, &request, -1))
        request->match.route->handler(server->options.context, request);
    return NULL;
}

static enum err start_workers(struct http_server *server, struct error *error) {
    while (server->worker_count < server->options.worker_threads) {
        pthread_t *thread = &server->workers[server->worker_count];
        int failed = pthread_create(thread, NULL, worker_main, server);
        if (failed != 0) return err_from_errno(error, failed, "cannot start a thread for requests");
        pthread_setname_np(*thread, "http-work");
        server->worker_count++;
    }
    return OK;
}

/* --- opening and closing --- */

static uint64_t or_default(uint64_t value, uint64_t otherwise) {
    return value ? value : otherwise;
}

static void fill_defaults(struct http_options *options) {
    if (!options->host) options->host = "127.0.0.1";
    options->connections_max = (uint32_t)or_default(options->connections_max, 1024);
    options->connections_per_peer_max =
        (uint32_t)or_default(options->connections_per_peer_max, 256);
    options->worker_threads = (uint32_t)or_default(options->worker_threads, 4);
    if (options->worker_threads > WORKERS_MAX) options->worker_threads = WORKERS_MAX;
    options->body_bytes_max = or_default(options->body_bytes_max, (uint64_t)32 << 20);
    options->body_bytes_total_max = or_default(options->body_bytes_total_max, (uint64_t)256 << 20);
    options->upload_bytes_max =
        or_default(options->upload_bytes_max, ((uint64_t)2 << 30) + ((uint64_t)1 << 20));
    options->stream_bytes_max = or_default(options->stream_bytes_max, (uint64_t)4 << 20);
    options->head_ms = (int64_t)or_default((uint64_t)options->head_ms, 10000);
    options->idle_ms = (int64_t)or_default((uint64_t)options->idle_ms, 75000);
    options->stall_ms = (int64_t)or_default((uint64_t)options->stall_ms, 120000);
    options->body_bytes_per_s_min = or_default(options->body_bytes_per_s_min, 1024);
    options->ping_ms = (int64_t)or_default((uint64_t)options->ping_ms, 15000);
}

/* The path is decoded by route.h, once and after it was split. */
static size_t keep_encoded(void *context, struct MHD_Connection *mhd, char *text) {
    (void)context, (void)mhd;
    return strlen(text);
}

static enum err start_daemon(struct http_server *server, unsigned connections_max,
                             struct error *error) {
    /* poll, not epoll: with its edge-triggered epoll, 0.9.75 never sees an end of input that
     * arrives together with the bytes before it (a short read clears its ready flag), and would
     * hold cut-off uploads for ever. The many idle sockets are in the gate's own epoll set. */
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC |
                     MHD_ALLOW_SUSPEND_RESUME;
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, handle, server, MHD_OPTION_CONNECTION_LIMIT, connections_max,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        0u, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_URI_LOG_CALLBACK, request_started, server,
        MHD_OPTION_NOTIFY_COMPLETED, request_completed, server, MHD_OPTION_NOTIFY_CONNECTION,
        connection_notified, server, MHD_OPTION_UNESCAPE_CALLBACK, keep_encoded, server,
        MHD_OPTION_END);
    if (!server->daemon)
        return err_set(error, ERR_UNAVAILABLE, "cannot start the HTTP library's thread");
    return OK;
}

enum err http_open(struct http_server **ret_server, const struct http_options *options,
                   uint16_t *ret_port, struct error *error) {
    assert(options->route_count <= HTTP_ROUTES_MAX);
    struct http_server *server = calloc(1, sizeof *server);
    if (!server) abort();
    server->options = *options;
    fill_defaults(&server->options);
    pthread_mutex_init(&server->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&server->idle, &attributes);
    pthread_condattr_destroy(&attributes);

    /* The library closes its end a little later than the gate does: it needs room for both. */
    unsigned connections_max = 2 * server->options.connections_max + 64;
    enum err err = ring_open(&server->work, connections_max, sizeof(struct http_request *), error);
    if (err == OK) err = start_workers(server, error);
    if (err == OK) err = start_daemon(server, connections_max, error);
    if (err == OK) {
        struct gate_options gate = {
            .host = server->options.host,
            .port = server->options.port,
            .connections_max = server->options.connections_max,
            .connections_per_peer_max = server->options.connections_per_peer_max,
            .head_ms = server->options.head_ms,
            .idle_ms = server->options.idle_ms,
            .stall_ms = server->options.stall_ms,
            .body_bytes_per_s_min = server->options.body_bytes_per_s_min,
            .context = server,
            .add = connection_added,
            .gone = connection_gone,
            .quiet_ms = server->options.ping_ms,
            .quiet = connection_quiet,
        };
        err = gate_open(&server->gate, &gate, ret_port, error);
    }
    if (err != OK) {
        http_close(server);
        return err;
    }
    *ret_server = server;
    return OK;
}

enum err http_start(struct http_server *server, struct error *error) {
    return gate_start(server->gate, error);
}

void http_stop_listening(struct http_server *server) {
    gate_stop_listening(server->gate);
}

static void wait_for_requests(struct http_server *server) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += CLOSE_WAIT_MS / 1000;
    pthread_mutex_lock(&server->lock);
    while (server->requests > 0 &&
           pthread_cond_timedwait(&server->idle, &server->lock, &until) == 0) {
    }
    pthread_mutex_unlock(&server->lock);
}

void http_close(struct http_server *server) {
    if (!server) return;
    if (server->gate) {
        wait_for_requests(server);
        gate_stop(server->gate);
    }
    if (server->daemon) MHD_stop_daemon(server->daemon);
    /* Whoever answered last may still be on its way out of the request. */
    pthread_mutex_lock(&server->lock);
    while (server->requests > 0) pthread_cond_wait(&server->idle, &server->lock);
    pthread_mutex_unlock(&server->lock);
    gate_close(server->gate);
    if (server->work) ring_stop(server->work);
    for (uint32_t i = 0; i < server->worker_count; i++) pthread_join(server->workers[i], NULL);
    ring_close(server->work);
    pthread_cond_destroy(&server->idle);
    pthread_mutex_destroy(&server->lock);
    free(server);
}

void http_status(struct http_server *server, struct http_status *ret_status) {
    struct gate_status gate;
    gate_status(server->gate, &gate);
    pthread_mutex_lock(&server->lock);
    ret_status->requests_inflight = server->requests;
    pthread_mutex_unlock(&server->lock);
    ret_status->body_bytes = atomic_load(&server->body_bytes);
    ret_status->connections = gate.connections;
    ret_status->connections_total = gate.connections_total;
    ret_status->refused_total = gate.refused_total;
    ret_status->keys_missing_total = atomic_load(&server->keys_missing_total);
    ret_status->keys_wrong_total = atomic_load(&server->keys_wrong_total);
    ret_status->keys_scope_total = atomic_load(&server->keys_scope_total);
    ret_status->keys_rate_total = atomic_load(&server->keys_rate_total);
}
