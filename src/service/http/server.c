/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/sync.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#define CONNECTION_MEMORY_BYTES ((size_t)48 << 10)
#define CLOSE_WAIT_MS 10000
#define LARGE_NICE 10

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

/* The bytes of the answer's body. The request's lock is held. */
static uint64_t answer_bytes(const struct http_request *request) {
    bool has_body = request->answered && request->method && strcmp(request->method, "HEAD") != 0;
    if (!has_body) return 0;
    switch (request->kind) {
    case ANSWER_BYTES:
        return request->static_body.at ? request->static_body.bytes : request->answer_body.bytes;
    case ANSWER_FILE: return request->file_range.bytes;
    case ANSWER_SOURCE:
    case ANSWER_STREAM: break;
    }
    return request->taken;
}

/* Fills in the rest of *done, and tells of the end of the request. */
static void tell_done(struct http_server *server, const struct http_request *request,
                      struct http_done *done) {
    if (!server->options.done) return;
    size_t question = str_find_byte(request->target, '?', 0);
    done->request_id = request->id;
    done->method = request->method ? request->method : "";
    done->path = request->target;
    if (question != SIZE_MAX) done->path.bytes = question;
    done->route_index = request->has_route ? request->match.route_index : SIZE_MAX;
    done->duration_ns = clock_monotonic_ns() - request->started_ns;
    done->body_bytes = request->body_seen;
    done->peer = gate_peer(request->connection);
    done->owner = request->caller.owner;
    done->key_id = request->caller.id;
    done->is_known = request->is_known;
    done->note = done->status != 0 ? request->note : NULL; /* else a handler may be writing it */
    server->options.done(server->options.context, done);
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
    struct http_done done = {.status = request->answered ? request->status : 0,
                             .answer_bytes = answer_bytes(request)};
    pthread_mutex_unlock(&request->lock);
    gate_request_done(request->connection);
    tell_done(server, request, &done);
    pthread_mutex_lock(&server->lock);
    gate_set_user(request->connection, NULL);
    pthread_mutex_unlock(&server->lock);
    http_request_drop(request);
}

/* The address by which libmicrohttpd knows a connection: it is made up, and holds the pointer to
 * the gate's connection. */
static struct sockaddr_un connection_address(struct gate_connection *connection) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, &connection, sizeof connection);
    return address;
}

static void connection_notified(void *context, struct MHD_Connection *mhd, void **socket_context,
                                enum MHD_ConnectionNotificationCode code) {
    struct ticker *ticker = context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        const struct sockaddr_un *address = (const struct sockaddr_un *)info->client_addr;
        struct gate_connection *connection;
        memcpy(&connection, address->sun_path, sizeof connection);
        *socket_context = connection;
    } else if (*socket_context) {
        ticker_remove(ticker);
        gate_drop(*socket_context);
        *socket_context = NULL;
    }
}

static bool connection_added(void *context, struct gate_connection *connection, int fd,
                             bool is_crowded) {
    struct http_server *server = context;
    struct sockaddr_un address = connection_address(connection);
    struct MHD_Daemon *daemon = is_crowded ? server->crowds : server->daemon;
    struct ticker *ticker = is_crowded ? &server->crowds_ticker : &server->daemon_ticker;
    ticker_add(ticker);
    if (MHD_add_connection(daemon, fd, (const struct sockaddr *)&address, sizeof address) ==
        MHD_YES)
        return true;
    ticker_remove(ticker);
    return false;
}

static bool tick(void *context) {
    struct http_server *server = context;
    bool daemon_needs = ticker_tick(&server->daemon_ticker);
    bool crowds_need = ticker_tick(&server->crowds_ticker);
    return daemon_needs || crowds_need;
}

/* Tells the connection's request, if it has one. */
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

static void connection_refused(void *context, const struct http_refused *refused) {
    struct http_server *server = context;
    if (server->options.refused) server->options.refused(server->options.context, refused);
}

static void connection_quiet(void *context, struct gate_connection *connection) {
    tell(context, connection, http_request_tell_quiet);
}

/* --- workers --- */

static void handle(struct http_server *server, struct fair_queue *queue) {
    struct http_request *request;
    struct share *share;
    while ((request = fair_queue_take(queue, &share))) {
        if (!http_answer_refill(request) && !http_request_is_refused(request))
            request->match.route->handler(server->options.context, request);
        fair_queue_done(queue, share);
    }
}

static void *worker_main(void *context) {
    struct http_server *server = context;
    handle(server, server->work);
    return NULL;
}

/* Answers probes of health, which must not wait behind large bodies. */
static void *quick_main(void *context) {
    struct http_server *server = context;
    handle(server, server->quick);
    return NULL;
}

/* Reads large bodies one after another, and behind all other work: stepping over one takes a core
 * for a while. */
static void *large_main(void *context) {
    struct http_server *server = context;
    setpriority(PRIO_PROCESS, 0, LARGE_NICE); /* this thread alone */
    handle(server, server->large);
    return NULL;
}

static enum err start_thread(pthread_t *ret_thread, void *(*thread_main)(void *),
                             struct http_server *server, const char *name, struct error *error) {
    int failed = pthread_create(ret_thread, NULL, thread_main, server);
    if (failed != 0) return err_from_errno(error, failed, "cannot start a thread for requests");
    pthread_setname_np(*ret_thread, name);
    return OK;
}

static enum err start_workers(struct http_server *server, struct error *error) {
    enum err err = OK;
    while (err == OK && server->worker_count < server->options.worker_threads) {
        err = start_thread(&server->workers[server->worker_count], worker_main, server, "http-work",
                           error);
        server->worker_count += err == OK;
    }
    if (err == OK)
        err = start_thread(&server->quick_worker, quick_main, server, "http-quick", error);
    server->has_quick_worker = err == OK;
    if (err == OK)
        err = start_thread(&server->large_worker, large_main, server, "http-large", error);
    server->has_large_worker = err == OK;
    return err;
}

/* One thread of the workers is kept from each owner, so that another finds it. */
static void open_queues(struct http_server *server) {
    server->work = fair_queue_new(server->options.worker_threads - 1);
    server->quick = fair_queue_new(1);
    server->large = fair_queue_new(1);
}

/* --- opening and closing --- */

static uint64_t or_default(uint64_t value, uint64_t otherwise) {
    return value ? value : otherwise;
}

static void fill_defaults(struct http_options *options) {
    if (!options->host) options->host = "127.0.0.1";
    options->connections_max = (uint32_t)or_default(options->connections_max, 1024);
    options->worker_threads = (uint32_t)or_default(options->worker_threads, 4);
    if (options->worker_threads > HTTP_WORKERS_MAX) options->worker_threads = HTTP_WORKERS_MAX;
    options->body_bytes_max = or_default(options->body_bytes_max, (uint64_t)32 << 20);
    options->body_memory_bytes_max =
        or_default(options->body_memory_bytes_max, (uint64_t)256 << 20);
    options->answer_memory_bytes_max =
        or_default(options->answer_memory_bytes_max, (uint64_t)256 << 20);
    options->upload_bytes_max =
        or_default(options->upload_bytes_max, ((uint64_t)2 << 30) + ((uint64_t)1 << 20));
    options->stream_bytes_max = or_default(options->stream_bytes_max, (uint64_t)4 << 20);
    options->head_ms = (int64_t)or_default((uint64_t)options->head_ms, 10000);
    options->idle_ms = (int64_t)or_default((uint64_t)options->idle_ms, 75000);
    options->stall_ms = (int64_t)or_default((uint64_t)options->stall_ms, 120000);
    options->body_bytes_per_s_min = or_default(options->body_bytes_per_s_min, 1024);
    options->ping_ms = (int64_t)or_default((uint64_t)options->ping_ms, 15000);
}

/* Leaves the path encoded: route.h decodes it, after it has split it. */
static size_t keep_encoded(void *context, struct MHD_Connection *mhd, char *text) {
    (void)context, (void)mhd;
    return strlen(text);
}

static enum err start_daemon(struct http_server *server, unsigned connections_max,
                             struct MHD_Daemon **ret_daemon, struct ticker *ticker,
                             struct error *error) {
    /* epoll, because poll looks at every connection several times per request, which took 1.2 ms
     * next to 890 idle ones. Its epoll is edge-triggered: 0.9.75 never sees an end of input that
     * arrives together with the bytes before it, so the gate ends its side only when those bytes
     * have been read (relay.c). And it may wait with events in its hands (ticker.h). */
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC |
                     MHD_ALLOW_SUSPEND_RESUME;
    *ret_daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, http_intake, server, MHD_OPTION_CONNECTION_LIMIT, connections_max,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        0u, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_URI_LOG_CALLBACK, request_started, server,
        MHD_OPTION_NOTIFY_COMPLETED, request_completed, server, MHD_OPTION_NOTIFY_CONNECTION,
        connection_notified, ticker, MHD_OPTION_UNESCAPE_CALLBACK, keep_encoded, server,
        MHD_OPTION_END);
    if (!*ret_daemon)
        return err_set(error, ERR_UNAVAILABLE, "cannot start the HTTP library's thread");
    return ticker_open(ticker, *ret_daemon, error);
}

enum err http_open(struct http_server **ret_server, const struct http_options *options,
                   uint16_t *ret_port, struct error *error) {
    assert(options->route_count <= HTTP_ROUTES_MAX);
    enum err err = origin_rules_check(&options->origins, error);
    if (err != OK) return err;
    struct http_server *server = mem_new(1, sizeof *server);
    server->options = *options;
    fill_defaults(&server->options);
    server->options.origins.host = server->options.host;
    pthread_mutex_init(&server->lock, NULL);
    sync_cond_init(&server->idle);
    server->throttle = key_throttle_new();
    server->daemon_ticker.event = server->crowds_ticker.event = -1;

    /* The library closes its end a little later than the gate: it needs room for old and new
     * ones. */
    unsigned connections_max = 2 * server->options.connections_max + 64;
    open_queues(server);
    err = start_workers(server, error);
    if (err == OK)
        err = start_daemon(server, connections_max, &server->daemon, &server->daemon_ticker, error);
    if (err == OK)
        err = start_daemon(server, connections_max, &server->crowds, &server->crowds_ticker, error);
    if (err == OK) {
        struct gate_options gate = {
            .host = server->options.host,
            .port = server->options.port,
            .tls = server->options.tls,
            .connections_max = server->options.connections_max,
            .connections_per_peer_max = server->options.connections_per_peer_max,
            .head_ms = server->options.head_ms,
            .idle_ms = server->options.idle_ms,
            .stall_ms = server->options.stall_ms,
            .body_bytes_per_s_min = server->options.body_bytes_per_s_min,
            .context = server,
            .add = connection_added,
            .tick = tick,
            .gone = connection_gone,
            .quiet_ms = server->options.ping_ms,
            .quiet = connection_quiet,
            .refused = connection_refused,
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
    int64_t due_ns = sync_deadline_ns(CLOSE_WAIT_MS);
    pthread_mutex_lock(&server->lock);
    while (server->requests > 0 && sync_wait_until(&server->idle, &server->lock, due_ns)) {
    }
    pthread_mutex_unlock(&server->lock);
}

/* Lets every connection wake that sleeps for a piece: libmicrohttpd must not be stopped before. */
static void end_pieces(struct http_server *server) {
    pthread_mutex_lock(&server->lock);
    server->reads_no_more = true;
    while (server->pieces > 0) pthread_cond_wait(&server->idle, &server->lock);
    pthread_mutex_unlock(&server->lock);
}

void http_close(struct http_server *server) {
    if (!server) return;
    if (server->gate) {
        wait_for_requests(server);
        gate_stop(server->gate);
    }
    end_pieces(server);
    if (server->daemon) MHD_stop_daemon(server->daemon);
    if (server->crowds) MHD_stop_daemon(server->crowds);
    ticker_close(&server->daemon_ticker);
    ticker_close(&server->crowds_ticker);
    /* The thread that answered last may not have left the request yet. */
    pthread_mutex_lock(&server->lock);
    while (server->requests > 0) pthread_cond_wait(&server->idle, &server->lock);
    pthread_mutex_unlock(&server->lock);
    gate_close(server->gate);
    fair_queue_stop(server->work);
    fair_queue_stop(server->quick);
    fair_queue_stop(server->large);
    for (uint32_t i = 0; i < server->worker_count; i++) pthread_join(server->workers[i], NULL);
    if (server->has_quick_worker) pthread_join(server->quick_worker, NULL);
    if (server->has_large_worker) pthread_join(server->large_worker, NULL);
    fair_queue_free(server->work);
    fair_queue_free(server->quick);
    fair_queue_free(server->large);
    pthread_cond_destroy(&server->idle);
    pthread_mutex_destroy(&server->lock);
    key_throttle_free(server->throttle);
    free(server);
}

void http_status(struct http_server *server, struct http_status *ret_status) {
    struct gate_status gate;
    gate_status(server->gate, &gate);
    pthread_mutex_lock(&server->lock);
    ret_status->requests_inflight = server->requests;
    pthread_mutex_unlock(&server->lock);
    ret_status->body_bytes = atomic_load(&server->body_bytes);
    ret_status->body_memory = atomic_load(&server->body_memory);
    ret_status->answer_memory = atomic_load(&server->answer_memory);
    ret_status->connections = gate.connections;
    ret_status->connections_total = gate.connections_total;
    ret_status->refused_total = gate.refused_total;
    ret_status->keys_missing_total = atomic_load(&server->keys_missing_total);
    ret_status->keys_wrong_total = atomic_load(&server->keys_wrong_total);
    ret_status->keys_scope_total = atomic_load(&server->keys_scope_total);
    ret_status->keys_rate_total = atomic_load(&server->keys_rate_total);
    ret_status->keys_guessed_total = atomic_load(&server->keys_guessed_total);
}
