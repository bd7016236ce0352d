/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_breaker: the circuit breaker of an upstream.
 *
 *     CLOSED ──5 failures in a row──▶ OPEN ──good probe──▶ HALF_OPEN ──an answer──▶ CLOSED
 *                                      ▲ └─bad probe: later─┘  │
 *                                      └───────a failure───────┘
 *
 * While it is open, only probes are sent; half open, one request at a time. Each bad probe makes
 * the next one later, up to 30 s. A request that fails behind a good probe opens the breaker again
 * for at most a second, because it may be the request. A request that was sent before the breaker
 * opened tells nothing about the upstream now. The breaker knows no socket and no clock.
 *
 * Thread: one.
 * Memory: none. */

#include <stdbool.h>
#include <stdint.h>

enum upstream_breaker_state {
    UPSTREAM_BREAKER_CLOSED,
    UPSTREAM_BREAKER_OPEN,
    UPSTREAM_BREAKER_HALF_OPEN,
};

/* Zero is a valid start: closed. */
struct upstream_breaker {
    enum upstream_breaker_state state;
    uint32_t failures;   /* in a row, while closed */
    uint32_t bad_probes; /* in a row */
    uint32_t bad_trials; /* requests in a row that failed while half open */
    int64_t changed_ns;  /* when it opened, or was half opened */
    int64_t probe_ns;    /* when the next probe is due */
};

/* True if the failure of a request that was sent then would open the breaker now. */
bool upstream_breaker_would_open(const struct upstream_breaker *breaker, int64_t sent_ns);
/* A request failed for a reason of the upstream. `jitter` is random in [0, 1). True when it opens.
 */
bool upstream_breaker_failed(struct upstream_breaker *breaker, int64_t sent_ns, int64_t now_ns,
                             double jitter);
/* A request was answered. True when it closes. */
bool upstream_breaker_answered(struct upstream_breaker *breaker, int64_t sent_ns);
/* The breaker has just opened for a reason that does not pass soon: the next probe comes after a
 * time that doubles with `times`, up to 30 s. */
void upstream_breaker_delay(struct upstream_breaker *breaker, uint32_t times, int64_t now_ns,
                            double jitter);
bool upstream_breaker_wants_probe(const struct upstream_breaker *breaker, int64_t now_ns);
void upstream_breaker_probed(struct upstream_breaker *breaker, bool is_good, int64_t now_ns,
                             double jitter);
/* "closed", "open" or "half_open". */
const char *upstream_breaker_name(enum upstream_breaker_state state);
