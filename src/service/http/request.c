/* SPDX-License-Identifier: Apache-2.0 */
#include "http/request.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/os.h"
#include "http/head.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct http_request *http_request_new(struct http_server *server,
                                      struct gate_connection *connection, const char *target) {
    struct http_request *request = mem_new(1, sizeof *request);
    request->server = server;
    request->connection = connection;
    gate_hold(connection);
    request->started_ns = clock_monotonic_ns();
    request->file_fd = -1;
    atomic_store(&request->holds, 1);
    arena_init(&request->arena, REQUEST_ARENA_BYTES_MAX);
    buf_init(&request->answer_body, BUF_UNLIMITED);
    pthread_mutex_init(&request->lock, NULL);
    id_hex(request->id, sizeof request->id, "req_", 32);
    size_t origin = head_origin_bytes(str_from(target)); /* the gate has checked the host */
    request->target =
        arena_copy(&request->arena, str_skip(str_from(target), origin == SIZE_MAX ? 0 : origin));
    return request;
}

void http_request_hold(struct http_request *request) {
    atomic_fetch_add(&request->holds, 1);
}

void http_request_drop(struct http_request *request) {
    if (atomic_fetch_sub(&request->holds, 1) != 1) return;
    if (request->upload_begun) request->match.route->upload->release(request->upload);
    if (request->release) request->release(request->gone_context);
    if (request->source.release) request->source.release(request->source.context);
    pthread_mutex_destroy(&request->lock);
    os_close(request->file_fd);
    digest_release(&request->file_digest);
    buf_release(&request->answer_body);
    buf_release(&request->body);
    buf_release(&request->stream);
    arena_release(&request->arena);
    free(request->multipart);
    gate_drop(request->connection);
    http_server_forget(request->server, request);
    free(request);
}

void http_request_tell_gone(struct http_request *request) {
    pthread_mutex_lock(&request->lock);
    void (*gone)(void *context) = request->handler_done ? NULL : request->gone;
    void *context = request->gone_context;
    request->gone = NULL;
    pthread_mutex_unlock(&request->lock);
    if (gone) gone(context);
}

bool http_request_is_gone(const struct http_request *request) {
    return gate_is_gone(request->connection);
}

void http_request_on_gone(struct http_request *request, void (*gone)(void *context),
                          void (*release)(void *context), void *context) {
    pthread_mutex_lock(&request->lock);
    assert(!request->gone_context);
    request->gone = gone;
    request->release = release;
    request->gone_context = context;
    pthread_mutex_unlock(&request->lock);
    /* The gate marks the connection before it looks for a request to tell. So either it sees this
     * request, or this thread sees the mark. */
    if (gate_is_gone(request->connection)) http_request_tell_gone(request);
}

void http_request_on_quiet(struct http_request *request, void (*quiet)(void *context)) {
    pthread_mutex_lock(&request->lock);
    request->quiet = quiet;
    pthread_mutex_unlock(&request->lock);
}

const char *http_request_id(const struct http_request *request) {
    return request->id;
}

const struct http_route *http_request_route(const struct http_request *request) {
    return request->match.route;
}

const struct key_caller *http_request_caller(const struct http_request *request) {
    return &request->caller;
}

const struct address *http_request_peer(const struct http_request *request) {
    return gate_peer(request->connection);
}

bool http_request_is_known(const struct http_request *request) {
    return request->is_known;
}

struct str http_request_param(const struct http_request *request, size_t index) {
    assert(index < ROUTE_PARAMS_MAX);
    return request->match.params[index];
}

struct str http_request_query(const struct http_request *request, const char *name) {
    return http_request_query_nth(request, name, 0);
}

struct str http_request_query_nth(const struct http_request *request, const char *name,
                                  size_t index) {
    for (size_t i = 0; i < request->query_count; i++)
        if (str_is(request->query[i].name, name) && index-- == 0) return request->query[i].value;
    return (struct str){NULL, 0};
}

struct str http_request_header(const struct http_request *request, const char *name) {
    size_t bytes = strlen(name);
    for (size_t i = 0; i < request->header_count; i++) {
        struct str found = request->headers[i].name;
        if (found.bytes == bytes && strncasecmp(found.at, name, bytes) == 0)
            return request->headers[i].value;
    }
    return (struct str){NULL, 0};
}

bool http_request_has_header_like(const struct http_request *request, const char *start) {
    size_t bytes = strlen(start);
    for (size_t i = 0; i < request->header_count; i++) {
        struct str name = request->headers[i].name;
        if (name.bytes >= bytes && strncasecmp(name.at, start, bytes) == 0) return true;
    }
    return false;
}

struct str http_request_body(const struct http_request *request) {
    return buf_str(&request->body);
}

struct buf http_request_take_body(struct http_request *request) {
    struct buf body = request->body;
    buf_init(&request->body, body.bytes_max);
    return body;
}

void *http_request_upload(const struct http_request *request) {
    return request->upload;
}

bool http_request_is_answered(struct http_request *request) {
    pthread_mutex_lock(&request->lock);
    bool answered = request->answered;
    pthread_mutex_unlock(&request->lock);
    return answered;
}

struct arena *http_request_arena(struct http_request *request) {
    return &request->arena;
}
