/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_summary.h"

#include "base/os.h"
#include "base/printable.h"
#include "base/str.h"
#include "batch/batch_costs.h"
#include "batch/shape_ends.h"
#include "costs/costs.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* This process and its largest child; the engine has ended by now. */
static uint64_t peak_rss_bytes(void) {
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    return os_peak_rss_bytes() + (uint64_t)children.ru_maxrss * 1024;
}

static double seconds_of(const struct rusage *usage) {
    return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
           (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;
}

/* Processor time of this process and its engine: other work on the machine disturbs it less than
 * the clock. */
static double cpu_seconds(void) {
    struct rusage own, children;
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &children);
    return seconds_of(&own) + seconds_of(&children);
}

static bool is_url(const char *name) {
    return strncmp(name, "http://", 7) == 0 || strncmp(name, "https://", 8) == 0;
}

/* "Shapes: 97 of 100 answers valid (97.0 %), 2 truncated, …": the words of the batch object. The
 * last three are told only where they occurred. */
static void print_shapes(const uint64_t ends[SHAPE_END_COUNT]) {
    uint64_t asked = 0;
    for (size_t i = 0; i < SHAPE_END_COUNT; i++) asked += ends[i];
    if (asked == 0) return;
    fprintf(stderr,
            "Shapes: %" PRIu64 " of %" PRIu64 " answers valid (%.1f %%), %" PRIu64
            " truncated, 0 repaired, %" PRIu64 " refused",
            ends[SHAPE_VALID], asked, 100 * (double)ends[SHAPE_VALID] / (double)asked,
            ends[SHAPE_TRUNCATED], ends[SHAPE_REFUSED]);
    static const enum shape_end others[] = {SHAPE_MISMATCHED, SHAPE_UNCHECKED, SHAPE_FAILED};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (ends[others[i]] > 0)
            fprintf(stderr, ", %" PRIu64 " %s", ends[others[i]], shape_end_names[others[i]]);
    fprintf(stderr, "\n");
}

/* A run whose earlier calls have left no time tells neither time nor energy. Power was measured in
 * this call alone. */
static struct cost_job job_of(const struct offline_summary *is) {
    double seconds = isnan(is->seconds_before) ? 0 : is->seconds_before + is->seconds;
    struct cost_job job = batch_cost_job(&is->usage, seconds, is->load_seconds);
    if (is->done_before == 0) job.measured_watts = is->watts;
    return job;
}

static void print_costs(const struct offline_summary *is, const struct prices *prices) {
    struct cost_job job = job_of(is);
    struct costs costs;
    struct buf text;
    costs_count(&job, prices, &costs);
    buf_init(&text, 1 << 16);
    costs_write_text(&text, &job, prices, &costs);
    if (text.bytes > 0) fputs(text.at, stderr);
    buf_release(&text);
}

static void print_json(const struct offline_summary *is, double rate, const struct prices *prices) {
    struct buf shapes, told;
    struct cost_job job = job_of(is);
    struct costs costs;
    buf_init(&shapes, 4096);
    shape_ends_write(&shapes, is->shapes);
    costs_count(&job, prices, &costs);
    buf_init(&told, 1 << 16);
    costs_write_json(&told, &job, prices, &costs);
    printf("{\"requests\": %" PRIu64 ", \"completed\": %" PRIu64 ", \"failed\": %" PRIu64
           ", \"seconds\": %.3f, \"load_seconds\": %.3f, \"cpu_seconds\": %.3f, \"req_s\": %.3f",
           is->requests, is->completed, is->failed, is->seconds, is->load_seconds, cpu_seconds(),
           rate);
    if (isnan(is->seconds_before))
        printf(", \"seconds_before\": null");
    else
        printf(", \"seconds_before\": %.3f", is->seconds_before);
    printf(", \"prompt_tokens\": %" PRIu64 ", \"cached_tokens\": %" PRIu64
           ", \"completion_tokens\": %" PRIu64 ", \"context_tokens\": %" PRIu32,
           is->usage.input_tokens, is->usage.cached_tokens, is->usage.output_tokens,
           is->context_tokens);
    printf(", \"peak_rss_bytes\": %" PRIu64 ", \"done_before\": %" PRIu64 ", \"rest\": %" PRIu64
           ", \"shapes\": %s, \"costs\": %s}\n",
           peak_rss_bytes(), is->done_before, is->rest_lines, shapes.at, told.at);
    buf_release(&told);
    buf_release(&shapes);
}

void run_summary_print(const struct offline_summary *is, bool json, const char *name,
                       const char *table, const struct prices *prices) {
    /* The query of a URL may be a secret. */
    char output[PATH_MAX];
    snprintf(output, sizeof output, "%.*s", (int)strcspn(name, is_url(name) ? "?#" : ""),
             strcmp(name, "-") == 0 ? "standard output" : name);
    uint64_t now = is->completed + is->failed - is->done_before;
    double rate = is->seconds > 0 ? (double)now / is->seconds : 0;
    char part[64] = "";
    if (is->was_finished) {
        fprintf(stderr,
                "%s has all results of this input already, %llu of them failed; nothing is left to "
                "do (--overwrite runs it again)\n",
                printable(output).text, (unsigned long long)is->failed);
        if (json) printf("{\"was_finished\": true, \"failed\": %" PRIu64 "}\n", is->failed);
        return;
    }
    if (json) {
        print_json(is, rate, prices);
        return;
    }
    if (is->done_before > 0) snprintf(part, sizeof part, ", %" PRIu64 " of them in this run", now);
    fprintf(stderr,
            "%llu of %llu requests completed, %llu failed%s, in %.1f s (%.2f req/s, %.0f "
            "tokens/s out); %s\n",
            (unsigned long long)is->completed, (unsigned long long)is->requests,
            (unsigned long long)is->failed, part, is->seconds, rate,
            is->seconds > 0 ? (double)is->output_tokens_now / is->seconds : 0,
            printable(output).text);
    if (is->rest_lines > 0)
        fprintf(stderr, "%" PRIu64 " %s more than the table shows: whole in " TABLE_REST "\n",
                is->rest_lines, plural(is->rest_lines, "result has", "results have"),
                printable(table).text);
    print_shapes(is->shapes);
    print_costs(is, prices);
}
