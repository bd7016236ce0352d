/* SPDX-License-Identifier: Apache-2.0 */
#include "net/wait.h"

#include "base/clock.h"
#include "net/retry.h"

/* retry-after-ms goes before retry-after, since it is finer. */
int64_t net_wait_asked_ms(const struct net_exchange *exchange) {
    static const struct {
        const char *name;
        bool is_ms;
    } headers[] = {{"retry-after-ms", true},          {"x-retry-after-ms", true},
                   {"x-ms-retry-after-ms", true},     {"retry-after", false},
                   {"x-retry-after", false},          {"x-ratelimit-retry-after", false},
                   {"x-ratelimit-reset-after", false}};
    struct str value;
    int64_t after_ms = -1;
    for (size_t i = 0; i < sizeof headers / sizeof *headers && after_ms < 0; i++)
        if (net_exchange_header(exchange, headers[i].name, 0, &value))
            after_ms = net_retry_after_ms(headers[i].is_ms, value, clock_unix_s());
    return after_ms;
}

/* The time of one kind of limit, of requests or of tokens, if that limit is used up. */
static int64_t read_reset_of(const struct net_exchange *exchange, const char *reset,
                             const char *remaining) {
    struct str value, left;
    if (!net_exchange_header(exchange, reset, 0, &value)) return -1;
    if (net_exchange_header(exchange, remaining, 0, &left) && !str_is(str_trim(left), "0"))
        return -1;
    return net_reset_ms(value, clock_unix_s());
}

/* The latest of all limits that are used up: before that, each request is refused again. */
int64_t net_wait_reset_ms(const struct net_exchange *exchange) {
    static const char *const headers[][2] = {
        {"x-ratelimit-reset-requests", "x-ratelimit-remaining-requests"},
        {"x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"},
        {"x-ratelimit-reset", "x-ratelimit-remaining"},
        {"x-rate-limit-reset", "x-rate-limit-remaining"},
        {"ratelimit-reset", "ratelimit-remaining"}};
    int64_t reset_ms = -1;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        int64_t ms = read_reset_of(exchange, headers[i][0], headers[i][1]);
        if (ms > reset_ms) reset_ms = ms;
    }
    return reset_ms;
}
