/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* metrics: the counters of api/, and the Prometheus text (0.0.4) of them and of the counters of
 * store, runner and http.
 *
 * Names have one prefix and base units. Labels come from closed sets or from the operator's names
 * (models, upstreams): never from an id, a key or a client's text. Every combination of labels from
 * a closed set is written from the start, as 0.
 *
 * Thread: any; counters are atomic and read one by one.
 * Memory: none. */

#include "base/buf.h"
#include "http/http.h"
#include "protocol/worker.h"

#include <stdatomic.h>
#include <stdint.h>

struct api;

enum metrics_outcome {
    METRICS_SUCCEEDED,
    METRICS_ERRORED,
    METRICS_CANCELLED,
    METRICS_EXPIRED,
    METRICS_OUTCOMES
};

enum metrics_tokens { TOKENS_INPUT, TOKENS_CACHED, TOKENS_OUTPUT, TOKENS_COUNT };

#define METRICS_HTTP_BOUNDS 11 /* bounds for the times of HTTP requests */
#define METRICS_CODES 6        /* status / 100; 0: the connection ended before an answer */

struct metrics {
    atomic_uint_fast64_t requests[ENDPOINT_ALL_COUNT][METRICS_OUTCOMES]; /* requests of clients */
    atomic_uint_fast64_t tokens[TOKENS_COUNT]; /* tokens of single clients */
    /* By row of the routing table; the last one counts requests that no row fitted. */
    atomic_uint_fast64_t http_requests[HTTP_ROUTES_MAX + 1][METRICS_CODES];
    atomic_uint_fast64_t http_ns[HTTP_ROUTES_MAX + 1];
    atomic_uint_fast64_t http_ranges[HTTP_ROUTES_MAX + 1][METRICS_HTTP_BOUNDS + 1];
    atomic_uint_fast64_t upload_bytes;
};

void metrics_count_http(struct metrics *metrics, const struct http_done *done);
void metrics_write(struct api *api, struct buf *buf);
