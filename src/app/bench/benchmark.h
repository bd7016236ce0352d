/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* benchmark: all runs of a benchmark, in turns, and the files that they leave.
 *
 * For each workload and each load, the rounds run one after another, and in each round every server
 * has one turn: A B A B. So a machine that becomes busy for minutes slows down both. The figures of
 * a server are the median of its rounds, with the least and the largest.
 *
 * The folder of results gets requests.jsonl, one JSON file per run, and report.html at the end
 * (result_files.h, report.h).
 *
 * Thread: main.
 * Memory: benchmark_release frees the figures; the rest belongs to the caller. */

#include "bench/drive.h"
#include "bench/machine.h"
#include "bench/plot.h"

#define BENCH_TARGETS_MAX PLOT_LINES_MAX
#define BENCH_LOADS_MAX 32
#define BENCH_WORKLOADS_MAX 16

/* Figures of one workload, one load and one server over its rounds. */
enum bench_metric {
    BENCH_REQUESTS,  /* per second */
    BENCH_OUTPUT,    /* output tokens per second */
    BENCH_FIRST_P50, /* ms to the first token */
    BENCH_FIRST_P99,
    BENCH_TOKEN_P50, /* ms per output token */
    BENCH_WHOLE_P50, /* ms per request */
    BENCH_WHOLE_P99,
    BENCH_CACHED, /* percent of the prompts' tokens that the server had in its prefix cache */
    BENCH_METRICS
};

struct benchmark {
    /* Set by the caller: */
    struct bench_target targets[BENCH_TARGETS_MAX];
    size_t target_count;
    struct workload workloads[BENCH_WORKLOADS_MAX];
    size_t workload_count;
    struct bench_load loads[BENCH_LOADS_MAX];
    size_t load_count;
    uint32_t rounds;
    struct bench_drive_options drive;
    char nonce[33]; /* filled by benchmark_run */
    const char *folder;
    bool is_detailed;
    /* Called before each run; NULL is allowed. */
    void (*show)(void *context, const struct bench_run *run, size_t number, size_t count);
    void *context;

    /* Filled by benchmark_run: */
    struct machine machine;
    struct bench_figures *figures; /* by workload, load, server, round */
    size_t figure_count;
};

/* Sets the model of each server: that of the first line if the server has it, else its first
 * one. */
enum err benchmark_find_models(struct benchmark *benchmark, struct error *error) MUST_CHECK;
/* Runs everything and writes the files. ERR_CANCELLED after *drive.stop, with the files of the runs
 * that ended. The caller releases in any case. */
enum err benchmark_run(struct benchmark *benchmark, struct error *error) MUST_CHECK;
/* Frees figures, workloads and the names of models. */
void benchmark_release(struct benchmark *benchmark);

/* The figures of one run. */
const struct bench_figures *benchmark_figures(const struct benchmark *benchmark, size_t workload,
                                              size_t load, size_t target, uint32_t round);
/* Median, least and largest of the rounds; unknown if no round measured the metric. */
struct plot_point benchmark_metric(const struct benchmark *benchmark, size_t workload, size_t load,
                                   size_t target, enum bench_metric metric);
/* Requests that failed, of all runs. */
uint64_t benchmark_failed(const struct benchmark *benchmark);
/* "8" for a concurrency, "2/s" for a rate. */
void benchmark_load_name(char ret_name[24], const struct bench_load *load);
