/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* server: the inside of struct http_server, shared by server.c (its life, its threads, the ends of
 * requests) and intake.c (what libmicrohttpd reads of a request, up to the handler). For these two
 * only.
 *
 * Thread: constant after http_open, but for what is atomic or has a lock. */

#include "base/ring.h"
#include "http/request.h"

#define HTTP_WORKERS_MAX 64

struct http_server {
    struct http_options options;
    struct gate *gate;
    struct MHD_Daemon *daemon;
    struct ring *work; /* of struct http_request *: whole requests for handlers */
    pthread_t workers[HTTP_WORKERS_MAX];
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

/* libmicrohttpd's handler: calls once when the headers are there, for each piece of the body, at
 * its end, and once more after a resume. */
enum MHD_Result http_intake(void *context, struct MHD_Connection *mhd, const char *url,
                            const char *method, const char *version, const char *bytes,
                            size_t *byte_count, void **request_context);
