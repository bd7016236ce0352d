/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/benchmark.h"

#include "base/id.h"
#include "base/mem.h"
#include "base/os.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/result_files.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static size_t place_of(const struct benchmark *benchmark, size_t workload, size_t load,
                       size_t target, uint32_t round) {
    return ((workload * benchmark->load_count + load) * benchmark->target_count + target) *
               benchmark->rounds +
           round;
}

const struct bench_figures *benchmark_figures(const struct benchmark *benchmark, size_t workload,
                                              size_t load, size_t target, uint32_t round) {
    return &benchmark->figures[place_of(benchmark, workload, load, target, round)];
}

/* --- files --- */

static enum err write_file(const char *folder, const char *name, int flags, const struct buf *text,
                           struct error *error) {
    char path[PATH_MAX];
    int fd = -1;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return err_set(error, ERR_INVALID, "the name of the folder is too long");
    enum err err = os_open(&fd, path, O_WRONLY | O_CREAT | flags, 0644, error);
    if (err == OK) err = os_write_all(fd, text->at, text->bytes, error);
    os_close(fd);
    return err;
}

static enum err keep_run(const struct benchmark *benchmark, const struct bench_run *run,
                         struct error *error) {
    char name[256];
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    result_files_write_requests(&text, run);
    enum err err = write_file(benchmark->folder, "requests.jsonl", O_APPEND, &text, error);
    buf_clear(&text);
    result_files_write_run(&text, run, &benchmark->machine, &benchmark->drive,
                           benchmark->is_detailed);
    result_files_name(name, sizeof name, run);
    if (err == OK) err = write_file(benchmark->folder, name, O_TRUNC, &text, error);
    buf_release(&text);
    return err;
}

static enum err keep_report(const struct benchmark *benchmark, struct error *error) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    report_write(&text, benchmark);
    enum err err = write_file(benchmark->folder, "report.html", O_TRUNC, &text, error);
    buf_release(&text);
    return err;
}

/* --- runs --- */

static enum err run_one(struct benchmark *benchmark, size_t workload, size_t load, size_t target,
                        uint32_t round, struct error *error) {
    struct bench_run run = {.target = &benchmark->targets[target],
                            .workload = &benchmark->workloads[workload],
                            .load = benchmark->loads[load],
                            .round = round + 1};
    size_t place = place_of(benchmark, workload, load, target, round);
    if (benchmark->show) benchmark->show(benchmark->context, &run, place, benchmark->figure_count);
    enum err err = bench_drive(&run, &benchmark->drive, error);
    if (err == OK) {
        benchmark->figures[place] = run.figures;
        err = keep_run(benchmark, &run, error);
    }
    bench_run_release(&run);
    return err;
}

static enum err run_all(struct benchmark *benchmark, struct error *error) {
    enum err err = OK;
    for (size_t workload = 0; workload < benchmark->workload_count; workload++)
        for (size_t load = 0; load < benchmark->load_count; load++)
            for (uint32_t round = 0; round < benchmark->rounds; round++)
                for (size_t target = 0; target < benchmark->target_count && err == OK; target++)
                    err = run_one(benchmark, workload, load, target, round, error);
    return err;
}

enum err benchmark_find_models(struct benchmark *benchmark, struct error *error) {
    const char *wanted =
        json_string_value(json_object_get(benchmark->workloads[0].lines[0].body, "model"));
    enum err err = OK;
    for (size_t i = 0; i < benchmark->target_count && err == OK; i++)
        err = bench_find_model(&benchmark->targets[i], wanted, &benchmark->targets[i].model, error);
    return err;
}

enum err benchmark_run(struct benchmark *benchmark, struct error *error) {
    const struct buf nothing = {.at = NULL};
    benchmark->figure_count = benchmark->workload_count * benchmark->load_count *
                              benchmark->target_count * benchmark->rounds;
    benchmark->figures = mem_new(benchmark->figure_count, sizeof *benchmark->figures);
    id_hex(benchmark->nonce, sizeof benchmark->nonce, "", 32);
    benchmark->drive.nonce = benchmark->nonce;
    machine_describe(&benchmark->machine);
    enum err err = os_mkdirs_shared(benchmark->folder, error);
    if (err == OK) err = write_file(benchmark->folder, "requests.jsonl", O_TRUNC, &nothing, error);
    if (err == OK) err = run_all(benchmark, error);
    return err == OK ? keep_report(benchmark, error) : err;
}

void benchmark_release(struct benchmark *benchmark) {
    for (size_t i = 0; i < benchmark->target_count; i++) free(benchmark->targets[i].model);
    for (size_t i = 0; i < benchmark->workload_count; i++)
        workload_release(&benchmark->workloads[i]);
    free(benchmark->figures);
    benchmark->figures = NULL;
}

/* --- figures over rounds --- */

static bool value_of(const struct bench_figures *is, enum bench_metric metric, double *ret_value) {
    const struct figures *times = &is->whole_ms;
    switch (metric) {
    case BENCH_REQUESTS: *ret_value = is->requests_per_s; return is->completed > 0;
    case BENCH_OUTPUT: *ret_value = is->output_per_s; return is->output_tokens > 0;
    case BENCH_CACHED: *ret_value = bench_cached_percent(is); return is->with_cached > 0;
    case BENCH_FIRST_P50:
    case BENCH_FIRST_P99: times = &is->first_ms; break;
    case BENCH_TOKEN_P50: times = &is->token_ms; break;
    case BENCH_WHOLE_P50:
    case BENCH_WHOLE_P99:
    case BENCH_METRICS: break;
    }
    bool is_high = metric == BENCH_FIRST_P99 || metric == BENCH_WHOLE_P99;
    *ret_value = is_high ? times->p99 : times->p50;
    return times->count > 0;
}

struct plot_point benchmark_metric(const struct benchmark *benchmark, size_t workload, size_t load,
                                   size_t target, enum bench_metric metric) {
    double *values = mem_new(benchmark->rounds, sizeof *values);
    size_t count = 0;
    for (uint32_t round = 0; round < benchmark->rounds; round++)
        count += value_of(benchmark_figures(benchmark, workload, load, target, round), metric,
                          &values[count]);
    struct figures is = figures_of(values, count);
    free(values);
    return (struct plot_point){is.median, is.min, is.max, count > 0};
}

uint64_t benchmark_failed(const struct benchmark *benchmark) {
    uint64_t failed = 0;
    for (size_t i = 0; i < benchmark->figure_count; i++) failed += benchmark->figures[i].failed;
    return failed;
}

void benchmark_load_name(char ret_name[24], const struct bench_load *load) {
    if (load->rate > 0)
        snprintf(ret_name, 24, "%.6g/s", load->rate);
    else
        snprintf(ret_name, 24, "%" PRIu32, load->concurrency);
}
