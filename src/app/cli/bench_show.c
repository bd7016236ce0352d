/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_show.h"

#include "json/json.h"

#include <inttypes.h>
#include <stdio.h>

static const struct {
    const char *head, *name;
} metrics[BENCH_METRICS] = {
    [BENCH_REQUESTS] = {"req/s", "request_throughput"},
    [BENCH_OUTPUT] = {"output tok/s", "output_throughput"},
    [BENCH_FIRST_P50] = {"TTFT p50 ms", "p50_ttft_ms"},
    [BENCH_FIRST_P99] = {"TTFT p99 ms", "p99_ttft_ms"},
    [BENCH_TOKEN_P50] = {"TPOT p50 ms", "p50_tpot_ms"},
    [BENCH_WHOLE_P50] = {"E2EL p50 ms", "p50_e2el_ms"},
    [BENCH_WHOLE_P99] = {"E2EL p99 ms", "p99_e2el_ms"},
    [BENCH_CACHED] = {"cached %", "cached_percent"},
};

void bench_show_run(void *context, const struct bench_run *run, size_t number, size_t count) {
    struct terminal *terminal = context;
    char line[256], load[24];
    benchmark_load_name(load, &run->load);
    snprintf(line, sizeof line, "run %zu of %zu: %.60s, workload %.60s, load %s, round %" PRIu32,
             number + 1, count, run->target->name, run->workload->name, load, run->round);
    terminal_draw(terminal, line);
}

struct counts {
    uint64_t completed, failed, without_usage;
};

static struct counts counts_of(const struct benchmark *benchmark, size_t workload, size_t load,
                               size_t target) {
    struct counts is = {0};
    for (uint32_t round = 0; round < benchmark->rounds; round++) {
        const struct bench_figures *of =
            benchmark_figures(benchmark, workload, load, target, round);
        is.completed += of->completed;
        is.failed += of->failed;
        is.without_usage += of->without_usage;
    }
    return is;
}

/* --- a table --- */

static void print_row(const struct benchmark *benchmark, size_t workload, size_t load,
                      size_t target) {
    char name[24], cell[64];
    struct counts counts = counts_of(benchmark, workload, load, target);
    benchmark_load_name(name, &benchmark->loads[load]);
    printf("%-16.16s %8s %-16.16s %6" PRIu64 " %6" PRIu64, benchmark->workloads[workload].name,
           name, benchmark->targets[target].name, counts.completed, counts.failed);
    for (int metric = 0; metric < BENCH_METRICS; metric++) {
        struct plot_point is =
            benchmark_metric(benchmark, workload, load, target, (enum bench_metric)metric);
        if (!is.is_known)
            snprintf(cell, sizeof cell, "-");
        else if (benchmark->rounds > 1)
            snprintf(cell, sizeof cell, "%.4g (%.4g-%.4g)", is.middle, is.low, is.high);
        else
            snprintf(cell, sizeof cell, "%.4g", is.middle);
        printf(" %*s", benchmark->rounds > 1 ? 24 : 12, cell);
    }
    struct plot_point own = benchmark_metric(benchmark, workload, load, 0, BENCH_OUTPUT);
    struct plot_point other = benchmark_metric(benchmark, workload, load, target, BENCH_OUTPUT);
    if (target > 0 && own.is_known && other.is_known)
        printf("  %s: %.2f times as fast", benchmark->targets[0].name, own.middle / other.middle);
    printf("%s\n", counts.without_usage > 0 ? "  tokens counted as events" : "");
}

void bench_show_table(const struct benchmark *benchmark) {
    printf("%-16s %8s %-16s %6s %6s", "workload", "load", "server", "good", "failed");
    for (int metric = 0; metric < BENCH_METRICS; metric++)
        printf(" %*s", benchmark->rounds > 1 ? 24 : 12, metrics[metric].head);
    printf("\n");
    for (size_t workload = 0; workload < benchmark->workload_count; workload++)
        for (size_t load = 0; load < benchmark->load_count; load++)
            for (size_t target = 0; target < benchmark->target_count; target++)
                print_row(benchmark, workload, load, target);
    printf("\nFigures are medians of the rounds. %s/report.html has charts, requests.jsonl every "
           "request.\n",
           benchmark->folder);
}

/* --- JSON --- */

static void write_metric(struct buf *out, const char *name, struct plot_point is) {
    buf_printf(out, ",\"%s\":", name);
    if (is.is_known)
        buf_printf(out, "{\"median\":%.9g,\"min\":%.9g,\"max\":%.9g}", is.middle, is.low, is.high);
    else
        buf_add_text(out, "null");
}

static void write_row(struct buf *out, const struct benchmark *benchmark, size_t workload,
                      size_t load, size_t target) {
    struct counts counts = counts_of(benchmark, workload, load, target);
    buf_add_text(out, "{\"workload\":");
    json_write_string(out, str_from(benchmark->workloads[workload].name));
    buf_add_text(out, ",\"server\":");
    json_write_string(out, str_from(benchmark->targets[target].name));
    buf_printf(out,
               ",\"concurrency\":%" PRIu32 ",\"request_rate\":%.9g,\"rounds\":%" PRIu32
               ",\"completed\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"without_usage\":%" PRIu64,
               benchmark->loads[load].concurrency, benchmark->loads[load].rate, benchmark->rounds,
               counts.completed, counts.failed, counts.without_usage);
    for (int metric = 0; metric < BENCH_METRICS; metric++)
        write_metric(
            out, metrics[metric].name,
            benchmark_metric(benchmark, workload, load, target, (enum bench_metric)metric));
    buf_add_byte(out, '}');
}

void bench_show_json(const struct benchmark *benchmark) {
    struct buf out;
    bool is_first = true;
    buf_init(&out, BUF_UNLIMITED);
    buf_add_text(&out, "{\"result_dir\":");
    json_write_string(&out, str_from(benchmark->folder));
    buf_add_text(&out, ",\"rows\":[");
    for (size_t workload = 0; workload < benchmark->workload_count; workload++)
        for (size_t load = 0; load < benchmark->load_count; load++)
            for (size_t target = 0; target < benchmark->target_count; target++) {
                if (!is_first) buf_add_byte(&out, ',');
                is_first = false;
                write_row(&out, benchmark, workload, load, target);
            }
    buf_add_text(&out, "]}");
    puts(out.at);
    buf_release(&out);
}
