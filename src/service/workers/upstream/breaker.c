/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/breaker.h"

#include "net/retry.h"

#define NS_PER_MS 1000000
#define FAILURES_MAX 5
#define PROBE_MS 500
#define PROBE_MS_MAX 30000
#define TRIAL_MS_MAX 1000

/* From half of a time that doubles with `times` to the whole of it. */
static int64_t delay_ns(uint32_t times, int64_t ms_max, double jitter) {
    int64_t ms = net_backoff_ms(PROBE_MS, ms_max, times);
    return (int64_t)((0.5 + jitter / 2) * (double)(ms * NS_PER_MS));
}

static void open_it(struct upstream_breaker *breaker, int64_t now_ns, double jitter) {
    breaker->state = UPSTREAM_BREAKER_OPEN;
    breaker->changed_ns = now_ns;
    breaker->failures = 0;
    breaker->bad_probes = 0;
    breaker->probe_ns = now_ns + delay_ns(breaker->bad_trials, TRIAL_MS_MAX, jitter);
}

bool upstream_breaker_would_open(const struct upstream_breaker *breaker, int64_t sent_ns) {
    switch (breaker->state) {
    case UPSTREAM_BREAKER_OPEN: return false;
    case UPSTREAM_BREAKER_HALF_OPEN: return sent_ns >= breaker->changed_ns;
    case UPSTREAM_BREAKER_CLOSED: break;
    }
    return breaker->failures + 1 >= FAILURES_MAX;
}

bool upstream_breaker_failed(struct upstream_breaker *breaker, int64_t sent_ns, int64_t now_ns,
                             double jitter) {
    bool opens = upstream_breaker_would_open(breaker, sent_ns);
    if (opens && breaker->state == UPSTREAM_BREAKER_HALF_OPEN) breaker->bad_trials++;
    if (opens)
        open_it(breaker, now_ns, jitter);
    else if (breaker->state == UPSTREAM_BREAKER_CLOSED)
        breaker->failures++;
    return opens;
}

void upstream_breaker_delay(struct upstream_breaker *breaker, uint32_t times, int64_t now_ns,
                            double jitter) {
    breaker->probe_ns = now_ns + delay_ns(times, PROBE_MS_MAX, jitter);
}

bool upstream_breaker_answered(struct upstream_breaker *breaker, int64_t sent_ns) {
    breaker->failures = 0;
    if (breaker->state != UPSTREAM_BREAKER_HALF_OPEN || sent_ns < breaker->changed_ns) return false;
    *breaker = (struct upstream_breaker){.state = UPSTREAM_BREAKER_CLOSED};
    return true;
}

bool upstream_breaker_wants_probe(const struct upstream_breaker *breaker, int64_t now_ns) {
    return breaker->state == UPSTREAM_BREAKER_OPEN && now_ns >= breaker->probe_ns;
}

void upstream_breaker_probed(struct upstream_breaker *breaker, bool is_good, int64_t now_ns,
                             double jitter) {
    if (breaker->state != UPSTREAM_BREAKER_OPEN) return;
    if (is_good) {
        breaker->state = UPSTREAM_BREAKER_HALF_OPEN;
        breaker->changed_ns = now_ns;
        return;
    }
    breaker->probe_ns = now_ns + delay_ns(++breaker->bad_probes, PROBE_MS_MAX, jitter);
}

const char *upstream_breaker_name(enum upstream_breaker_state state) {
    static const char *const names[] = {"closed", "open", "half_open"};
    return names[state];
}
