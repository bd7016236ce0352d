/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/result_files.h"

#include "bench/measure.h"
#include "json/json.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

static void add_number(struct buf *out, const char *name, double value) {
    buf_printf(out, ",\"%s\":%.9g", name, isfinite(value) ? value : 0);
}

static void add_text(struct buf *out, const char *name, const char *text) {
    buf_printf(out, ",\"%s\":", name);
    if (text)
        json_write_string(out, str_from(text));
    else
        buf_add_text(out, "null");
}

static void add_gaps(struct buf *out, const struct bench_record *record) {
    buf_add_byte(out, '[');
    for (size_t i = 0; i < record->gap_count; i++)
        buf_printf(out, "%s%.6f", i > 0 ? "," : "", (double)record->gaps[i]);
    buf_add_byte(out, ']');
}

static double first_of(const struct bench_record *record) {
    return record->events > 0 ? record->first - record->start : 0;
}

/* --- requests --- */

static void write_request(struct buf *out, const struct bench_run *run,
                          const struct bench_record *record) {
    buf_add_text(out, "{\"target\":");
    json_write_string(out, str_from(run->target->name));
    add_text(out, "workload", run->workload->name);
    buf_printf(out, ",\"concurrency\":%" PRIu32, run->load.concurrency);
    add_number(out, "request_rate", run->load.rate);
    buf_printf(out, ",\"round\":%" PRIu32, run->round);
    add_text(out, "custom_id", record->line ? record->line->custom_id : NULL);
    buf_printf(out, ",\"status\":%d,\"success\":%s", record->status,
               record->is_good ? "true" : "false");
    add_text(out, "error", record->is_good ? NULL : record->why);
    buf_printf(out, ",\"start_s\":%.6f,\"ttft_s\":%.6f,\"e2el_s\":%.6f", record->start,
               first_of(record), record->end - record->start);
    buf_printf(out,
               ",\"prompt_tokens\":%" PRIu64 ",\"cached_tokens\":%" PRIu64
               ",\"output_tokens\":%" PRIu64 ",\"events\":%" PRIu32
               ",\"tokens_by\":\"%s\",\"itls_s\":",
               record->prompt_tokens, record->cached_tokens, record->output_tokens, record->events,
               record->has_usage ? "usage" : "events");
    add_gaps(out, record);
    buf_add_text(out, "}\n");
}

void result_files_write_requests(struct buf *out, const struct bench_run *run) {
    for (size_t i = 0; i < run->count; i++) write_request(out, run, &run->records[i]);
}

/* --- runs --- */

static void add_figures(struct buf *out, const char *name, const struct figures *is) {
    const struct {
        const char *of;
        double value;
    } rows[] = {{"mean", is->mean}, {"median", is->median}, {"std", is->deviation},
                {"p50", is->p50},   {"p90", is->p90},       {"p95", is->p95},
                {"p99", is->p99}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        buf_printf(out, ",\"%s_%s_ms\":%.9g", rows[i].of, name, rows[i].value);
}

static void add_own(struct buf *out, const struct bench_run *run, const struct machine *machine,
                    uint32_t warmups, bool is_fresh) {
    const struct bench_figures *is = &run->figures;
    buf_add_text(out, ",\"quern\":{\"version\":\"" QUERN_VERSION "\"");
    add_text(out, "base_url", run->target->base_url);
    add_text(out, "workload", run->workload->name);
    buf_printf(out, ",\"round\":%" PRIu32 ",\"warmups\":%" PRIu32, run->round, warmups);
    buf_printf(out, ",\"fresh\":%s,\"cached_percent\":", is_fresh ? "true" : "false");
    if (is->with_cached > 0)
        buf_printf(out, "%.9g", bench_cached_percent(is));
    else
        buf_add_text(out, "null");
    buf_printf(out,
               ",\"total_cached_tokens\":%" PRIu64 ",\"without_usage\":%" PRIu64
               ",\"usage_below_events\":%" PRIu64,
               is->cached_tokens, is->without_usage, is->below_events);
    add_text(out, "command", machine->command);
    add_text(out, "processor", machine->processor);
    add_text(out, "kernel", machine->kernel);
    buf_printf(out, ",\"cores\":%ld,\"memory_bytes\":%" PRIu64 ",\"load_before\":%.2f}",
               machine->cores, machine->memory_bytes, machine->load);
}

/* One array over all requests; `write` appends one value. */
static void add_array(struct buf *out, const struct bench_run *run, const char *name,
                      void (*write)(struct buf *out, const struct bench_record *record)) {
    buf_printf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < run->count; i++) {
        if (i > 0) buf_add_byte(out, ',');
        write(out, &run->records[i]);
    }
    buf_add_byte(out, ']');
}

static void write_input(struct buf *out, const struct bench_record *record) {
    buf_printf(out, "%" PRIu64, record->prompt_tokens);
}

static void write_output(struct buf *out, const struct bench_record *record) {
    buf_printf(out, "%" PRIu64, record->is_good ? record->output_tokens : 0);
}

static void write_first(struct buf *out, const struct bench_record *record) {
    buf_printf(out, "%.6f", first_of(record));
}

static void write_latency(struct buf *out, const struct bench_record *record) {
    buf_printf(out, "%.6f", record->end - record->start);
}

static void write_start(struct buf *out, const struct bench_record *record) {
    buf_printf(out, "%.6f", record->start);
}

static void write_error(struct buf *out, const struct bench_record *record) {
    json_write_string(out, str_from(record->is_good || !record->why ? "" : record->why));
}

static void add_details(struct buf *out, const struct bench_run *run) {
    add_array(out, run, "input_lens", write_input);
    add_array(out, run, "output_lens", write_output);
    add_array(out, run, "ttfts", write_first);
    add_array(out, run, "itls", add_gaps);
    add_array(out, run, "latencies", write_latency);
    add_array(out, run, "start_times", write_start);
    add_array(out, run, "errors", write_error);
}

static void add_load(struct buf *out, const struct bench_load *load) {
    if (load->rate > 0)
        add_number(out, "request_rate", load->rate);
    else
        buf_add_text(out, ",\"request_rate\":\"inf\"");
    buf_printf(out, ",\"burstiness\":1.0,\"max_concurrency\":%" PRIu32, load->concurrency);
}

void result_files_write_run(struct buf *out, const struct bench_run *run,
                            const struct machine *machine, const struct bench_drive_options *drive,
                            bool is_detailed) {
    const struct bench_figures *is = &run->figures;
    char date[32] = "";
    struct tm tm;
    time_t started = (time_t)run->started_s;
    if (localtime_r(&started, &tm)) strftime(date, sizeof date, "%Y%m%d-%H%M%S", &tm);
    buf_printf(out,
               "{\"date\":\"%s\",\"backend\":\"openai-chat\",\"endpoint_type\":\"openai-chat\"",
               date);
    add_text(out, "label", run->target->name);
    add_text(out, "model_id", run->target->model);
    add_text(out, "tokenizer_id", run->target->model);
    buf_printf(out, ",\"num_prompts\":%zu", run->count);
    add_load(out, &run->load);
    add_number(out, "duration", is->seconds);
    buf_printf(out,
               ",\"completed\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"total_input_tokens\":%" PRIu64
               ",\"total_output_tokens\":%" PRIu64,
               is->completed, is->failed, is->prompt_tokens, is->output_tokens);
    add_number(out, "request_throughput", is->requests_per_s);
    buf_add_text(out, ",\"request_goodput\":null");
    add_number(out, "output_throughput", is->output_per_s);
    add_number(out, "total_token_throughput", is->tokens_per_s);
    add_number(out, "max_output_tokens_per_s", is->output_per_s_max);
    buf_printf(out, ",\"max_concurrent_requests\":%" PRIu32, is->in_flight_max);
    add_figures(out, "ttft", &is->first_ms);
    add_figures(out, "tpot", &is->token_ms);
    add_figures(out, "itl", &is->gap_ms);
    add_figures(out, "e2el", &is->whole_ms);
    if (is_detailed) add_details(out, run);
    add_own(out, run, machine, drive->warmups, drive->is_fresh);
    buf_add_text(out, "}\n");
}

void result_files_name(char *ret_name, size_t name_bytes, const struct bench_run *run) {
    char load[48];
    if (run->load.rate > 0)
        snprintf(load, sizeof load, "q%g", run->load.rate);
    else
        snprintf(load, sizeof load, "c%" PRIu32, run->load.concurrency);
    snprintf(ret_name, name_bytes, "%.60s-%.60s-%s-r%" PRIu32 ".json", run->target->name,
             run->workload->name, load, run->round);
    for (char *c = ret_name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '.') *c = '_';
}
