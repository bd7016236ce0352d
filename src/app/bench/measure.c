/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/measure.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

#define MS 1000.0

/* Lists of times, one entry per request but in `gaps`. */
struct times {
    double *first, *token, *whole, *gaps;
    size_t first_count, token_count, whole_count, gap_count;
};

static void add_record(struct bench_figures *is, struct times *times,
                       const struct bench_record *record) {
    is->completed++;
    is->without_usage += !record->has_usage;
    is->below_events += record->has_usage && record->output_tokens < record->events;
    is->with_cached += record->has_cached;
    is->prompt_tokens += record->prompt_tokens;
    is->cached_tokens += record->cached_tokens;
    is->output_tokens += record->output_tokens;
    times->whole[times->whole_count++] = (record->end - record->start) * MS;
    if (record->events == 0) return;
    times->first[times->first_count++] = (record->first - record->start) * MS;
    if (record->output_tokens > 1)
        times->token[times->token_count++] =
            (record->end - record->first) * MS / (double)(record->output_tokens - 1);
    for (size_t i = 0; i < record->gap_count; i++)
        times->gaps[times->gap_count++] = (double)record->gaps[i] * MS;
}

/* The most events with text in one of the whole seconds that the run took. */
static double busiest_second(const struct bench_run *run, double end) {
    size_t seconds = (size_t)end + 1;
    double most = 0;
    double *counts = mem_new(seconds, sizeof *counts);
    for (size_t i = 0; i < run->count; i++) {
        const struct bench_record *record = &run->records[i];
        double at = record->first;
        for (uint32_t k = 0; record->is_good && k < record->events; k++) {
            if (k > 0) at += (double)record->gaps[k - 1];
            size_t second = (size_t)at;
            counts[second < seconds ? second : seconds - 1]++;
        }
    }
    for (size_t i = 0; i < seconds; i++) most = fmax(most, counts[i]);
    free(counts);
    return most;
}

void bench_measure(struct bench_run *run) {
    struct bench_figures is = {.in_flight_max = run->in_flight_max};
    size_t gaps = 0;
    double start = INFINITY, end = 0;
    for (size_t i = 0; i < run->count; i++) gaps += run->records[i].gap_count;
    double *room = mem_new(3 * run->count + gaps, sizeof *room);
    struct times times = {.first = room,
                          .token = room + run->count,
                          .whole = room + 2 * run->count,
                          .gaps = room + 3 * run->count};
    for (size_t i = 0; i < run->count; i++) {
        const struct bench_record *record = &run->records[i];
        start = fmin(start, record->start);
        end = fmax(end, record->end);
        if (record->is_good)
            add_record(&is, &times, record);
        else
            is.failed++;
    }
    is.seconds = end > start ? end - start : 0;
    if (is.seconds > 0) {
        is.requests_per_s = (double)is.completed / is.seconds;
        is.output_per_s = (double)is.output_tokens / is.seconds;
        is.tokens_per_s = (double)(is.output_tokens + is.prompt_tokens) / is.seconds;
    }
    is.output_per_s_max = busiest_second(run, end);
    is.first_ms = figures_of(times.first, times.first_count);
    is.token_ms = figures_of(times.token, times.token_count);
    is.gap_ms = figures_of(times.gaps, times.gap_count);
    is.whole_ms = figures_of(times.whole, times.whole_count);
    free(room);
    run->figures = is;
}

double bench_cached_percent(const struct bench_figures *figures) {
    if (figures->prompt_tokens == 0) return 0;
    return 100 * (double)figures->cached_tokens / (double)figures->prompt_tokens;
}
