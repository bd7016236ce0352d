/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* server: the inside of struct http_server, for the files of http/ that count in it. server.c has
 * its life, its threads and the ends of requests, intake.c a request from libmicrohttpd to the
 * handler, server_account.c what requests hold of the server: memory, pieces of answers, turns.
 *
 * Thread: constant after http_open, except the atomic members and those that `lock` guards.
 * Memory: one struct http_server, from http_open to http_close. */

#include "http/body_memory_claims.h"
#include "http/fair_queue.h"
#include "http/request.h"
#include "http/ticker.h"
#include "keys/key_throttle.h"

#define HTTP_WORKERS_MAX 64

struct http_server {
    struct http_options options;
    struct gate *gate;
    struct MHD_Daemon *daemon; /* its connections are those of addresses that have few */
    struct MHD_Daemon *crowds; /* the other connections (is_crowded of gate.h) */
    struct ticker daemon_ticker, crowds_ticker;
    /* Queues of struct http_request *: whole requests for handlers, and answers whose source is to
     * give a piece; requests of quick routes; those with bodies above HTTP_PLAIN_BODY_BYTES_MAX. */
    struct fair_queue *work, *quick, *large;
    pthread_t workers[HTTP_WORKERS_MAX];
    uint32_t worker_count;
    pthread_t quick_worker, large_worker;
    bool has_quick_worker, has_large_worker;
    pthread_mutex_t lock; /* guards the members up to `claims`, and the requests of connections
                             (gate_user) */
    pthread_cond_t idle;  /* `requests` or `pieces` has become 0 */
    uint32_t requests;
    uint32_t pieces;    /* connections that sleep until a worker thread has read a piece */
    bool reads_no_more; /* no further piece is read */
    struct key_throttle *throttle;
    struct body_memory_claims claims;
    atomic_uint_fast64_t body_bytes;    /* bytes of all bodies kept in memory */
    atomic_uint_fast64_t body_memory;   /* what they are counted at */
    atomic_uint_fast64_t answer_memory; /* bytes of answers that wait for their clients */
    atomic_bool warned_of_open_key;     /* once is enough */
    atomic_uint_fast64_t keys_missing_total;
    atomic_uint_fast64_t keys_wrong_total;
    atomic_uint_fast64_t keys_scope_total;
    atomic_uint_fast64_t keys_rate_total;
    atomic_uint_fast64_t keys_guessed_total;
};

/* Counts memory that an answer takes. False, and not counted, if all answers have too much. */
bool http_server_keep_answer(struct http_server *server, uint64_t bytes, bool is_small);
/* The body of an answered request is not read any more: frees it and gives its memory back. */
void http_server_forget_body(struct http_server *server, struct http_request *request);
/* Counts a piece that is to be read, if the server is not about to close. */
bool http_server_begin_piece(struct http_server *server);
void http_server_end_piece(struct http_server *server);

/* Writes the owner of a request: without keys, and on open routes, its address. */
void http_server_owner(const struct http_request *request, char ret_owner[CLAIM_OWNER_BYTES]);
/* Gives a request to the threads of `queue` as one of its owner's. */
void http_server_put(struct fair_queue *queue, struct http_request *request);

/* The handler that libmicrohttpd calls: with the headers, with each piece of the body, at its end,
 * and once more after a resume. */
enum MHD_Result http_intake(void *context, struct MHD_Connection *mhd, const char *url,
                            const char *method, const char *version, const char *bytes,
                            size_t *byte_count, void **request_context);
