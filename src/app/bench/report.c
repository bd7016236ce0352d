/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/report.h"

#include "base/clock.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static const struct {
    const char *title, *head;
} metrics[BENCH_METRICS] = {
    [BENCH_REQUESTS] = {"Requests per second", "req/s"},
    [BENCH_OUTPUT] = {"Output tokens per second", "output tok/s"},
    [BENCH_FIRST_P50] = {"Time to first token, p50 (ms)", "TTFT p50 ms"},
    [BENCH_FIRST_P99] = {"Time to first token, p99 (ms)", "TTFT p99 ms"},
    [BENCH_TOKEN_P50] = {"Time per output token, p50 (ms)", "TPOT p50 ms"},
    [BENCH_WHOLE_P50] = {"Latency of a request, p50 (ms)", "latency p50 ms"},
    [BENCH_WHOLE_P99] = {"Latency of a request, p99 (ms)", "latency p99 ms"},
    [BENCH_CACHED] = {"Cached tokens of the prompts (%)", "cached %"},
};

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width\"><title>quern bench</title>\n<style>\n"
    ":root{color-scheme:light dark;--ink:#1c2128;--soft:#59636e;--rule:#d1d9e0;--page:#fff;"
    "--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#bf3989;--c5:#9a6700;--c6:#1b7c83;"
    "--c7:#57606a}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--rule:#3d444d;"
    "--page:#0d1117;--c0:#58a6ff;--c1:#ffa657;--c2:#56d364;--c3:#d2a8ff;--c4:#ff9bce;--c5:#e3b341;"
    "--c6:#56d4dd;--c7:#b1bac4}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);"
    "max-width:1000px;margin:2em auto;padding:0 1em}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}"
    "th,td{padding:.25em .6em;border-bottom:1px solid var(--rule);text-align:right}"
    "th:first-child,td:first-child,th:nth-child(2),td:nth-child(2){text-align:left}"
    "div.wide{overflow-x:auto}small{color:var(--soft)}\n"
    "pre{overflow-x:auto;padding:.8em;border:1px solid var(--rule)}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(380px,1fr));gap:1em}\n"
    "svg{width:100%;height:auto}svg text{fill:var(--soft);font-size:11px}"
    "svg .title{fill:var(--ink);font-size:14px;font-weight:600}"
    "svg .grid{stroke:var(--rule);stroke-width:1}svg polyline{fill:none;stroke-width:2}"
    "svg .range{stroke-width:1.5}\n";

static void write_head(struct buf *out) {
    buf_add_text(out, head);
    for (int i = 0; i < PLOT_LINES_MAX; i++)
        buf_printf(out,
                   ".s%d{color:var(--c%d)}svg .s%d *{stroke:var(--c%d)}svg .s%d circle{fill:"
                   "var(--c%d)}",
                   i, i, i, i, i, i);
    buf_add_text(out, "\n</style></head><body>\n<h1>quern bench</h1>\n");
}

/* --- charts --- */

static void write_chart(struct buf *out, const struct benchmark *benchmark, size_t workload,
                        enum bench_metric metric) {
    struct plot_point points[BENCH_TARGETS_MAX][BENCH_LOADS_MAX];
    char names[BENCH_LOADS_MAX][24];
    const char *places[BENCH_LOADS_MAX];
    bool is_open = benchmark->loads[0].rate > 0, is_known = false;
    struct plot plot = {.title = metrics[metric].title,
                        .x_title = is_open ? "requests per second offered" : "concurrency",
                        .places = places,
                        .place_count = benchmark->load_count,
                        .line_count = benchmark->target_count};
    for (size_t load = 0; load < benchmark->load_count; load++) {
        benchmark_load_name(names[load], &benchmark->loads[load]);
        places[load] = names[load];
    }
    for (size_t target = 0; target < benchmark->target_count; target++) {
        plot.lines[target] = (struct plot_line){benchmark->targets[target].name, points[target]};
        for (size_t load = 0; load < benchmark->load_count; load++) {
            points[target][load] = benchmark_metric(benchmark, workload, load, target, metric);
            is_known |= points[target][load].is_known;
        }
    }
    if (is_known) plot_write(out, &plot);
}

static void write_legend(struct buf *out, const struct benchmark *benchmark) {
    buf_add_text(out, "<p>");
    for (size_t i = 0; i < benchmark->target_count; i++) {
        buf_printf(out, "<span class=\"s%zu\">&#9679;</span> <b>", i);
        plot_write_text(out, benchmark->targets[i].name);
        buf_add_text(out, "</b> ");
        plot_write_text(out, benchmark->targets[i].base_url);
        buf_add_text(out, ", model ");
        plot_write_text(out,
                        benchmark->targets[i].model ? benchmark->targets[i].model : "of the lines");
        buf_add_text(out, "<br>\n");
    }
    buf_add_text(out, "</p>\n");
}

/* --- tables --- */

static void write_cell(struct buf *out, const struct benchmark *benchmark,
                       struct plot_point point) {
    if (!point.is_known)
        buf_add_text(out, "<td>-</td>");
    else if (benchmark->rounds > 1)
        buf_printf(out, "<td>%.4g <small>%.4g&ndash;%.4g</small></td>", point.middle, point.low,
                   point.high);
    else
        buf_printf(out, "<td>%.4g</td>", point.middle);
}

static void write_row(struct buf *out, const struct benchmark *benchmark, size_t workload,
                      size_t load, size_t target) {
    uint64_t failed = 0, completed = 0;
    char name[24];
    benchmark_load_name(name, &benchmark->loads[load]);
    for (uint32_t round = 0; round < benchmark->rounds; round++) {
        completed += benchmark_figures(benchmark, workload, load, target, round)->completed;
        failed += benchmark_figures(benchmark, workload, load, target, round)->failed;
    }
    buf_printf(out, "<tr><td>%s</td><td class=\"s%zu\">", name, target);
    plot_write_text(out, benchmark->targets[target].name);
    buf_printf(out, "</td><td>%" PRIu64 "</td><td>%" PRIu64 "</td>", completed, failed);
    for (int metric = 0; metric < BENCH_METRICS; metric++)
        write_cell(out, benchmark,
                   benchmark_metric(benchmark, workload, load, target, (enum bench_metric)metric));
    struct plot_point own = benchmark_metric(benchmark, workload, load, 0, BENCH_OUTPUT);
    struct plot_point other = benchmark_metric(benchmark, workload, load, target, BENCH_OUTPUT);
    if (target > 0 && own.is_known && other.is_known)
        buf_printf(out, "<td>%.2f</td></tr>\n", own.middle / other.middle);
    else
        buf_add_text(out, "<td></td></tr>\n");
}

static void write_table(struct buf *out, const struct benchmark *benchmark, size_t workload) {
    buf_printf(out,
               "<div class=\"wide\"><table><tr><th>%s</th><th>server</th><th>completed</th>"
               "<th>failed</th>",
               benchmark->loads[0].rate > 0 ? "offered" : "concurrency");
    for (int metric = 0; metric < BENCH_METRICS; metric++)
        buf_printf(out, "<th>%s</th>", metrics[metric].head);
    buf_add_text(out, "<th>");
    plot_write_text(out, benchmark->targets[0].name);
    buf_add_text(out, " is faster by this factor</th></tr>\n");
    for (size_t load = 0; load < benchmark->load_count; load++)
        for (size_t target = 0; target < benchmark->target_count; target++)
            write_row(out, benchmark, workload, load, target);
    buf_add_text(out, "</table></div>\n");
}

/* --- what a reader must know --- */

static void write_notes(struct buf *out, const struct benchmark *benchmark) {
    uint64_t failed = 0, without_usage = 0, below_events = 0;
    for (size_t i = 0; i < benchmark->figure_count; i++) {
        failed += benchmark->figures[i].failed;
        without_usage += benchmark->figures[i].without_usage;
        below_events += benchmark->figures[i].below_events;
    }
    buf_printf(out,
               "<h2>How it was measured</h2>\n<ul><li>%" PRIu32
               " rounds, the servers in turn; a figure is the median of the rounds, with the least "
               "and the largest.</li>\n<li>%" PRIu32
               " requests before each run warm the server up and are not counted.</li>\n"
               "<li>%" PRIu64
               " requests failed. They are in no latency and in no throughput.</li>\n",
               benchmark->rounds, benchmark->drive.warmups, failed);
    if (without_usage > 0)
        buf_printf(out,
                   "<li>The answers to %" PRIu64
                   " requests have no usage: their events with text count as tokens.</li>\n",
                   without_usage);
    if (below_events > 0)
        buf_printf(out,
                   "<li>The usage of %" PRIu64
                   " answers has fewer tokens than the answer has events with text; it is used as "
                   "it is.</li>\n",
                   below_events);
    if (benchmark->drive.is_fresh)
        buf_add_text(out, "<li>Each prompt begins with a mark of its run, so that no prefix cache "
                          "has it from another run. Cached tokens are what the prompts of one run "
                          "share.</li>\n");
    else
        buf_add_text(out,
                     "<li>All runs send the same prompts (--no-fresh): from the second run on, "
                     "prefix caches can have them, and the figures then are those of a "
                     "cache.</li>\n");
    buf_add_text(out, "</ul>\n");
}

static void write_machine(struct buf *out, const struct benchmark *benchmark) {
    const struct machine *machine = &benchmark->machine;
    char date[32] = "";
    struct tm tm;
    time_t now = (time_t)clock_unix_s();
    if (gmtime_r(&now, &tm)) strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &tm);
    buf_add_text(out, "<h2>Machine and command</h2>\n<p>This page's client ran on: ");
    plot_write_text(out, machine->processor);
    buf_printf(out, ", %ld cores, %.1f GiB, ", machine->cores,
               (double)machine->memory_bytes / (double)(1 << 30));
    plot_write_text(out, machine->kernel);
    buf_printf(out, "; load %.2f before the first run; quern " QUERN_VERSION "; %s.</p>\n<pre>",
               machine->load, date);
    plot_write_text(out, machine->command);
    buf_add_text(out, "</pre>\n");
}

void report_write(struct buf *out, const struct benchmark *benchmark) {
    write_head(out);
    write_legend(out, benchmark);
    for (size_t workload = 0; workload < benchmark->workload_count; workload++) {
        buf_add_text(out, "<h2>Workload ");
        plot_write_text(out, benchmark->workloads[workload].name);
        buf_printf(out, ", %zu %s</h2>\n<div class=\"charts\">\n",
                   benchmark->workloads[workload].count,
                   plural(benchmark->workloads[workload].count, "request", "requests"));
        for (int metric = 0; metric < BENCH_METRICS; metric++)
            write_chart(out, benchmark, workload, (enum bench_metric)metric);
        buf_add_text(out, "</div>\n");
        write_table(out, benchmark, workload);
    }
    write_notes(out, benchmark);
    write_machine(out, benchmark);
    buf_add_text(out, "</body></html>\n");
}
