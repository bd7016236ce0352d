/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/pace.h"

#define RATE_SECONDS 60.0  /* the time over which a rate is averaged */
#define KNOWN_SECONDS 5.0  /* a rate counts after so much measured time */
#define AHEAD_SECONDS 8.0  /* work that waits at a worker; more than a beat and a pack take */
#define SLOW_FACTOR 4.0    /* mixed machines of one fleet differ by less */
#define TAIL_SECONDS 2.0   /* a batch that ends sooner by less is not worth a message */
#define OVERDUE_FACTOR 3.0 /* answers of one batch differ in length */
#define OVERDUE_SECONDS 10.0

void pace_note(struct pace *pace, double lines, double seconds) {
    if (seconds <= 0) return;
    double kept = RATE_SECONDS / (RATE_SECONDS + seconds);
    pace->lines = pace->lines * kept + lines;
    pace->seconds = pace->seconds * kept + seconds;
}

double pace_rate(const struct pace *pace) {
    if (pace->seconds < KNOWN_SECONDS) return 0;
    return (pace->lines > 1 ? pace->lines : 1) / pace->seconds;
}

double pace_slowness(double rate_for_weight, double best_for_weight) {
    if (rate_for_weight <= 0 || rate_for_weight * SLOW_FACTOR > best_for_weight) return 1;
    return best_for_weight / rate_for_weight;
}

uint32_t pace_bound(double rate, uint32_t running, uint32_t lines_max) {
    if (rate <= 0) return lines_max;
    double ahead = rate * AHEAD_SECONDS;
    if (ahead < PACE_LINES_MIN) ahead = PACE_LINES_MIN;
    double bound = ahead + running;
    return bound < lines_max ? (uint32_t)bound : lines_max;
}

uint32_t pace_share(const struct pace_worker *own, const struct pace_worker *other, uint32_t left) {
    bool are_known = own->rate > 0 && other->rate > 0;
    double own_speed = are_known ? own->rate : own->weight;
    double speed = are_known ? other->rate : other->weight;
    double share =
        (own_speed * ((double)other->lines + left) - speed * own->lines) / (own_speed + speed);
    if (share < 1) return 0;
    return share < left ? (uint32_t)share : left;
}

double pace_even_s(struct pace_worker *workers, size_t count) {
    double best = 0, lines = 0, rate = 0;
    for (size_t i = 0; i < count; i++)
        if (workers[i].rate > best * workers[i].weight) best = workers[i].rate / workers[i].weight;
    if (best <= 0) return 0;
    for (size_t i = 0; i < count; i++) {
        struct pace_worker *worker = &workers[i];
        if (worker->rate <= 0) worker->rate = best * worker->weight;
        lines += worker->lines;
        bool counts = worker->room > 0 || worker->lines > 0;
        if (counts && !worker->is_silent) rate += worker->rate;
    }
    return rate > 0 ? lines / rate : 0;
}

uint32_t pace_recall(const struct pace_worker *worker, double even_s) {
    if (worker->rate <= 0 || worker->lines < worker->rate * (even_s + TAIL_SECONDS)) return 0;
    uint32_t kept = (uint32_t)(worker->rate * even_s) + 1;
    if (kept < worker->running) kept = worker->running;
    return kept < worker->lines ? worker->lines - kept : 0;
}

void pace_took(struct pace_longest *longest, double now_s, double took_s) {
    if (now_s - longest->since_s >= RATE_SECONDS) {
        longest->before_s = longest->now_s;
        longest->now_s = 0;
        longest->since_s = now_s;
    }
    if (took_s > longest->now_s) longest->now_s = took_s;
}

double pace_longest_s(const struct pace_longest *longest) {
    return longest->now_s > longest->before_s ? longest->now_s : longest->before_s;
}

bool pace_is_overdue(double age_s, double longest_s) {
    return longest_s > 0 && age_s > longest_s * OVERDUE_FACTOR + OVERDUE_SECONDS;
}
