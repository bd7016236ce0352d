/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/limit.h"

#include "net/retry.h"

#include <assert.h>

#define NS_PER_MS 1000000
#define START 8.0
#define RAMP_NS (50 * (int64_t)NS_PER_MS)
#define CUT 0.7
#define CUT_RAMP 0.5 /* the fast start overshoots by up to two */
#define PAUSE_MS 100
#define PAUSE_MS_MAX 30000
#define RETRY_AFTER_MS_MAX ((int64_t)3600 * 1000)
#define WINDOW_ANSWERS_MIN 32
/* A window is overloaded when both hold; then the level falls by a fifth. */
#define RATE_LOST 0.8
#define LATENCY_GREW 1.5
#define OVERLOAD_CUT 0.8
#define RATE_GAINED 1.1 /* by a cut: then another follows */
#define FORGET 0.02     /* share of the best figures per window, because requests change */

void upstream_limit_init(struct upstream_limit *limit, uint32_t max) {
    assert(max > 0);
    *limit =
        (struct upstream_limit){.max = max, .level = max < START ? max : START, .is_ramping = true};
}

uint32_t upstream_limit_level(const struct upstream_limit *limit) {
    return (uint32_t)limit->level;
}

bool upstream_limit_is_paused(const struct upstream_limit *limit, int64_t now_ns) {
    return now_ns < limit->pause_until_ns;
}

static void set_level(struct upstream_limit *limit, double level) {
    if (level > limit->max) level = limit->max;
    limit->level = level < 1 ? 1 : level;
}

static void start_window(struct upstream_limit *limit, int64_t now_ns) {
    limit->window_ns = now_ns;
    limit->answers = 0;
    limit->work = limit->latency_s = 0;
}

static void cut(struct upstream_limit *limit, double factor, int64_t now_ns) {
    set_level(limit, limit->level * factor);
    limit->is_ramping = false;
    limit->cut_ns = now_ns;
    limit->best_rate = limit->low_latency_s = 0;
    start_window(limit, now_ns);
}

void upstream_limit_tick(struct upstream_limit *limit, bool is_full, int64_t now_ns) {
    if (!limit->is_ramping || !is_full || now_ns - limit->ramped_ns < RAMP_NS) return;
    /* The first tick with a full level only starts the clock: a refusal needs time to come. */
    if (limit->ramped_ns != 0) set_level(limit, limit->level * 2);
    limit->ramped_ns = now_ns;
    if (limit->level >= limit->max) limit->is_ramping = false;
}

/* True when the window that ends now did less than earlier ones, and slower, or when a cut for that
 * reason was a gain. */
static bool is_overloaded(struct upstream_limit *limit, double rate) {
    double latency_s = limit->latency_s / limit->answers;
    bool is_first = limit->best_rate == 0;
    bool is_bad = !is_first && rate < RATE_LOST * limit->best_rate &&
                  latency_s > LATENCY_GREW * limit->low_latency_s;
    limit->best_rate *= 1 - FORGET;
    limit->low_latency_s *= 1 + FORGET;
    if (is_first || rate > limit->best_rate) limit->best_rate = rate;
    if (is_first || latency_s < limit->low_latency_s) limit->low_latency_s = latency_s;
    /* One alone may be half of a better time, and gives no rate to compare with. */
    bool is_overload = is_bad && limit->is_suspect;
    limit->is_suspect = is_bad && !is_overload;
    if (limit->overload_rate > 0 && rate > RATE_GAINED * limit->overload_rate) is_overload = true;
    limit->overload_rate = is_overload ? rate : 0;
    return is_overload;
}

void upstream_limit_answered(struct upstream_limit *limit, int64_t sent_ns, int64_t now_ns,
                             double work, bool is_full) {
    if (sent_ns >= limit->cut_ns) limit->refusals = 0;
    if (!is_full || limit->window_ns == 0) {
        start_window(limit, now_ns);
        return;
    }
    if (!limit->is_ramping) set_level(limit, limit->level + 1 / limit->level);
    limit->answers++;
    limit->work += work;
    limit->latency_s += (double)(now_ns - sent_ns) / 1e9;
    double wanted = 2 * limit->level;
    if (limit->answers < (wanted < WINDOW_ANSWERS_MIN ? WINDOW_ANSWERS_MIN : wanted)) return;
    double seconds = (double)(now_ns - limit->window_ns) / 1e9;
    if (is_overloaded(limit, seconds > 0 ? limit->work / seconds : 0))
        cut(limit, OVERLOAD_CUT, now_ns);
    start_window(limit, now_ns);
}

void upstream_limit_refused(struct upstream_limit *limit, int64_t sent_ns, int64_t now_ns,
                            int64_t retry_after_ms, double jitter) {
    bool is_news = limit->cut_ns == 0 || sent_ns >= limit->cut_ns;
    if (is_news) {
        cut(limit, limit->is_ramping ? CUT_RAMP : CUT, now_ns);
        limit->refusals++;
    }
    uint32_t doublings = limit->refusals > 0 ? limit->refusals - 1 : 0;
    int64_t pause_ms =
        (int64_t)(jitter * (double)net_backoff_ms(PAUSE_MS, PAUSE_MS_MAX, doublings));
    if (retry_after_ms >= 0)
        pause_ms = retry_after_ms < RETRY_AFTER_MS_MAX ? retry_after_ms : RETRY_AFTER_MS_MAX;
    else if (!is_news)
        return;
    if (now_ns + pause_ms * NS_PER_MS > limit->pause_until_ns)
        limit->pause_until_ns = now_ns + pause_ms * NS_PER_MS;
}
