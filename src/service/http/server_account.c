/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server.h"

#include <stdio.h>

void http_server_forget(struct http_server *server, const struct http_request *request) {
    atomic_fetch_sub(&server->body_bytes, request->body_kept);
    atomic_fetch_sub(&server->body_memory, request->body_kept * request->body_cost);
    atomic_fetch_sub(&server->answer_memory, request->answer_kept + request->stream_kept);
    pthread_mutex_lock(&server->lock);
    if (--server->requests == 0) pthread_cond_broadcast(&server->idle);
    pthread_mutex_unlock(&server->lock);
}

void http_server_forget_body(struct http_server *server, struct http_request *request) {
    atomic_fetch_sub(&server->body_bytes, request->body_kept);
    atomic_fetch_sub(&server->body_memory, request->body_kept * request->body_cost);
    request->body_kept = 0;
    buf_release(&request->body);
}

bool http_server_keep_answer(struct http_server *server, uint64_t bytes, bool is_small) {
    uint64_t before = atomic_fetch_add(&server->answer_memory, bytes);
    if (is_small || before + bytes <= server->options.answer_memory_bytes_max) return true;
    atomic_fetch_sub(&server->answer_memory, bytes);
    return false;
}

bool http_server_begin_piece(struct http_server *server) {
    pthread_mutex_lock(&server->lock);
    bool reads = !server->reads_no_more;
    if (reads) server->pieces++;
    pthread_mutex_unlock(&server->lock);
    return reads;
}

void http_server_end_piece(struct http_server *server) {
    pthread_mutex_lock(&server->lock);
    if (--server->pieces == 0) pthread_cond_broadcast(&server->idle);
    pthread_mutex_unlock(&server->lock);
}

/* --- owners and their turns --- */

void http_server_owner(const struct http_request *request, char ret_owner[CLAIM_OWNER_BYTES]) {
    struct key_set *keys = request->server->options.keys;
    const struct address *peer = gate_peer(request->connection);
    /* IPv6: the /64 network only, because one machine has many addresses. */
    size_t used = 1, bytes = peer->is_v4 ? 16 : 8;
    ret_owner[0] = '@';
    for (size_t i = 0; i < bytes; i++, used += 2)
        snprintf(ret_owner + used, CLAIM_OWNER_BYTES - used, "%02x", peer->bytes[i]);
    if (keys && key_set_asks(keys) && request->match.route->scope != KEY_SCOPE_OPEN)
        snprintf(ret_owner, CLAIM_OWNER_BYTES, "%s", request->caller.owner);
}

void http_server_put(struct fair_queue *queue, struct http_request *request) {
    char owner[CLAIM_OWNER_BYTES];
    http_server_owner(request, owner);
    fair_queue_put(queue, owner, request);
}
