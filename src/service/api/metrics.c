/* SPDX-License-Identifier: Apache-2.0 */
#include "api/metrics.h"
#include "api/copies.h"

#include "api/api_internal.h"
#include "api/metrics_text.h"
#include "base/mem.h"
#include "base/os.h"
#include "batch/extras.h"
#include "batch/state.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *const endpoint_names[ENDPOINT_ALL_COUNT] = {
    "chat",      "completions", "embeddings", "score",         "decisions",
    "systemone", "rerank",      "pooling",    "responses",     "messages",
    "classify",  "tokenize",    "detokenize", "tokenizer_info"};
static const char *const outcome_names[METRICS_OUTCOMES] = {"succeeded", "errored", "cancelled",
                                                            "expired"};
static const char *const tokens_names[TOKENS_COUNT] = {"input", "cached", "output"};
static const char *const code_names[METRICS_CODES] = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};

static const struct histogram_bounds http_bounds = {
    METRICS_HTTP_BOUNDS, {.001, .005, .01, .05, .1, .5, 1, 5, 10, 60, 600}};

void metrics_count_http(struct metrics *metrics, const struct http_done *done) {
    size_t route = done->route_index < HTTP_ROUTES_MAX ? done->route_index : HTTP_ROUTES_MAX;
    int hundreds = done->status / 100;
    atomic_fetch_add(&metrics->http_requests[route][hundreds < METRICS_CODES ? hundreds : 5], 1);
    atomic_fetch_add(&metrics->http_ns[route], (uint64_t)done->duration_ns);
    size_t range = 0;
    while (range < METRICS_HTTP_BOUNDS && (double)done->duration_ns * 1e-9 > http_bounds.at[range])
        range++;
    atomic_fetch_add(&metrics->http_ranges[route][range], 1);
}

static void write_requests(struct metrics *metrics, struct buf *buf) {
    metrics_head(buf, "quern_requests_total", "counter", "Requests of single clients by outcome.");
    for (int endpoint = 0; endpoint < ENDPOINT_ALL_COUNT; endpoint++)
        for (int outcome = 0; outcome < METRICS_OUTCOMES; outcome++)
            buf_printf(buf,
                       "quern_requests_total{endpoint=\"%s\",outcome=\"%s\"} %" PRIuFAST64 "\n",
                       endpoint_names[endpoint], outcome_names[outcome],
                       atomic_load(&metrics->requests[endpoint][outcome]));
}

static void write_tokens(struct metrics *metrics, const struct runner_status *status,
                         struct buf *buf) {
    const uint64_t of_batches[TOKENS_COUNT] = {
        status->usage.input_tokens, status->usage.cached_tokens, status->usage.output_tokens};
    metrics_head(buf, "quern_tokens_total", "counter",
                 "Tokens of single requests and of durable batch lines.");
    for (int type = 0; type < TOKENS_COUNT; type++)
        buf_printf(buf, "quern_tokens_total{type=\"%s\"} %" PRIu64 "\n", tokens_names[type],
                   (uint64_t)atomic_load(&metrics->tokens[type]) + of_batches[type]);
}

static const char *route_name(size_t route) {
    return route < api_route_count ? api_routes[route].operation : "none";
}

/* The method of a route stands in its name: createBatch. */
static void write_http_seconds(struct metrics *metrics, struct buf *buf) {
    metrics_head(buf, "quern_http_request_seconds", "histogram",
                 "From the head of an HTTP request to the end of its answer.");
    for (size_t route = 0; route < api_route_count; route++) {
        struct histogram seconds = {.sum = (double)atomic_load(&metrics->http_ns[route]) / 1e9};
        char labels[96];
        for (size_t i = 0; i <= METRICS_HTTP_BOUNDS; i++)
            seconds.counts[i] = atomic_load(&metrics->http_ranges[route][i]);
        snprintf(labels, sizeof labels, "route=\"%s\"", route_name(route));
        metrics_histogram(buf, "quern_http_request_seconds", labels, &http_bounds, &seconds);
    }
}

static void write_http(struct api *api, struct buf *buf) {
    struct metrics *metrics = &api->metrics;
    struct http_status status;
    http_status(api->server, &status);
    metrics_head(buf, "quern_http_requests_total", "counter",
                 "HTTP requests by route and status class.");
    for (size_t route = 0; route <= HTTP_ROUTES_MAX; route++)
        for (int code = 0; code < METRICS_CODES; code++)
            if ((route < api_route_count || route == HTTP_ROUTES_MAX) && code != 1)
                buf_printf(buf,
                           "quern_http_requests_total{route=\"%s\",code=\"%s\"} %" PRIuFAST64 "\n",
                           route_name(route), code_names[code],
                           atomic_load(&metrics->http_requests[route][code]));
    metrics_head(buf, "quern_http_request_seconds_total", "counter",
                 "Time spent on HTTP requests.");
    for (size_t route = 0; route < api_route_count; route++)
        buf_printf(buf, "quern_http_request_seconds_total{route=\"%s\"} %.9g\n", route_name(route),
                   (double)atomic_load(&metrics->http_ns[route]) / 1e9);
    write_http_seconds(metrics, buf);
    metrics_one(buf, "quern_http_connections", "gauge", status.connections, "Open connections.");
    metrics_one(buf, "quern_http_requests_inflight", "gauge", status.requests_inflight,
                "HTTP requests without a complete answer.");
    metrics_one(buf, "quern_http_body_bytes", "gauge", (double)status.body_bytes,
                "Request bodies kept in memory.");
    metrics_one(buf, "quern_http_connections_total", "counter", (double)status.connections_total,
                "Connections accepted.");
    metrics_one(buf, "quern_http_refused_total", "counter", (double)status.refused_total,
                "Requests and connections refused for framing, size, pace or number.");
    metrics_one(
        buf, "quern_access_log_skipped_total", "counter",
        (double)atomic_load(&api->access.skipped_total),
        "Lines of the access log left out, for their rate or because the log was not read.");
    metrics_one(buf, "quern_http_upload_bytes_total", "counter",
                (double)atomic_load(&metrics->upload_bytes), "Bytes of files stored.");
    metrics_head(buf, "quern_auth_failures_total", "counter", "Requests refused for their key.");
    buf_printf(buf,
               "quern_auth_failures_total{reason=\"missing\"} %" PRIu64
               "\nquern_auth_failures_total{reason=\"wrong\"} %" PRIu64
               "\nquern_auth_failures_total{reason=\"scope\"} %" PRIu64
               "\nquern_auth_failures_total{reason=\"rate\"} %" PRIu64
               "\nquern_auth_failures_total{reason=\"guessing\"} %" PRIu64 "\n",
               status.keys_missing_total, status.keys_wrong_total, status.keys_scope_total,
               status.keys_rate_total, status.keys_guessed_total);
}

static void write_batches(struct api *api, struct buf *buf) {
    uint64_t counts[BATCH_STATUS_COUNT] = {0};
    struct error error;
    enum err err = store_batch_counts(api->options.store, counts, &error);
    metrics_head(buf, "quern_batches", "gauge", "Batches by status.");
    for (int status = 0; err == OK && status < BATCH_STATUS_COUNT; status++)
        buf_printf(buf, "quern_batches{status=\"%s\"} %" PRIu64 "\n",
                   batch_status_name((enum batch_status)status), counts[status]);
}

static void write_runner(const struct runner_status *status, struct buf *buf) {
    metrics_one(buf, "quern_requests_inflight", "gauge",
                (double)(status->requests_in_flight + status->lines_in_flight),
                "Requests of clients and batch lines with the engines or waiting for them.");
    metrics_one(buf, "quern_batches_live", "gauge", (double)status->batches_live,
                "Batches that are not in a terminal status.");
    metrics_one(buf, "quern_lines_total", "counter", (double)status->lines_done,
                "Batch lines with a durable result.");
    metrics_head(buf, "quern_lines_ended_total", "counter",
                 "Batch lines with a durable record, by outcome.");
    for (int outcome = 0; outcome < METRICS_OUTCOMES; outcome++)
        buf_printf(buf, "quern_lines_ended_total{outcome=\"%s\"} %" PRIu64 "\n",
                   outcome_names[outcome], status->lines_ended[SEGLOG_SUCCESS + outcome]);
    metrics_one(buf, "quern_lines_deduplicated_total", "counter", (double)status->lines_reused,
                "Of these, with the answer of an equal request: nothing was computed.");
    metrics_one(buf, "quern_lines_recalled_total", "counter", (double)status->lines_recalled,
                "Lines asked back from workers that were slow, at the ends of batches.");
    metrics_head(buf, "quern_deduplicated_tokens_total", "counter",
                 "Tokens that were not computed again.");
    buf_printf(buf,
               "quern_deduplicated_tokens_total{type=\"input\"} %" PRIu64
               "\nquern_deduplicated_tokens_total{type=\"output\"} %" PRIu64 "\n",
               status->usage.reused_input_tokens, status->usage.reused_output_tokens);
    metrics_one(buf, "quern_lines_retried_total", "counter", (double)status->lines_retried,
                "Batch lines tried again.");
    metrics_head(buf, "quern_quality_alarms_total", "counter",
                 "Batches whose answers look wrong, by what is wrong with them.");
    for (size_t i = 0; i < QUALITY_SHARES; i++)
        buf_printf(buf, "quern_quality_alarms_total{share=\"%s\"} %" PRIu64 "\n",
                   quality_share_names[i], status->quality_alarms[i]);
    metrics_head(buf, "quern_shaped_lines_total", "counter",
                 "Batch lines that asked for structured output, by how they ended.");
    for (size_t i = SHAPE_NONE + 1; i < SHAPE_END_COUNT; i++)
        buf_printf(buf, "quern_shaped_lines_total{end=\"%s\"} %" PRIu64 "\n", shape_end_names[i],
                   status->shapes[i]);
    metrics_one(buf, "quern_batches_paused", "gauge", (double)status->batches_paused,
                "Batches that wait for their owner.");
    metrics_one(buf, "quern_lines_lost_total", "counter", (double)status->lines_lost,
                "Batch lines lost by engines that went down, and tried again.");
    metrics_one(buf, "quern_recovered_requests_total", "counter", (double)status->recovered_lines,
                "Results found on the disk at start.");
    metrics_one(buf, "quern_ready", "gauge", status->ready, "1 when work is taken.");
}

static void per_queue(struct buf *buf, const struct runner_progress *progress, const char *name,
                      const char *help, uint64_t (*value)(const struct runner_queue *queue)) {
    metrics_head(buf, name, "gauge", help);
    for (size_t i = 0; i < progress->queue_count; i++) {
        buf_printf(buf, "%s{model=\"", name);
        metrics_label(buf, progress->queues[i].model);
        buf_printf(buf, "\"} %" PRIu64 "\n", value(&progress->queues[i]));
    }
}

static uint64_t depth_of(const struct runner_queue *queue) {
    return queue->lines + queue->requests;
}

static uint64_t age_of(const struct runner_queue *queue) {
    return queue->oldest_age_s > 0 ? (uint64_t)queue->oldest_age_s : 0;
}

/* Adds each worker's model without work as an empty queue, so that its series exists from the start
 * on, and stays. */
static void add_idle_queues(struct api *api, struct runner_progress *progress) {
    char model[MODEL_NAME_BYTES];
    for (size_t i = 0; runner_worker_model(api->options.runner, i, model); i++) {
        size_t at = 0;
        while (at < progress->queue_count && strcmp(progress->queues[at].model, model) != 0) at++;
        if (!*model || at < progress->queue_count || at == RUNNER_QUEUES_MAX) continue;
        struct runner_queue *queue = &progress->queues[progress->queue_count++];
        *queue = (struct runner_queue){.lines = 0};
        snprintf(queue->model, sizeof queue->model, "%s", model);
    }
}

static void write_progress(struct api *api, struct buf *buf) {
    struct runner_progress *progress = mem_alloc(sizeof *progress);
    runner_progress(api->options.runner, progress);
    add_idle_queues(api, progress);
    per_queue(buf, progress, "quern_queue_depth",
              "Requests and batch lines without a result, by model; an empty name stands for "
              "batches that name several.",
              depth_of);
    per_queue(buf, progress, "quern_queue_oldest_age_seconds",
              "Since the oldest batch that still runs was created.", age_of);
    metrics_one(
        buf, "quern_batch_oldest_progress_age_seconds", "gauge",
        (double)progress->oldest_progress_age_s,
        "Since the last result of the batch that got none for longest; those that wait for their "
        "turn are not counted.");
    /* Without a deadline the value is one day, so that an alarm on a small value stays silent. */
    metrics_one(
        buf, "quern_batch_deadline_seconds_min", "gauge",
        progress->has_deadline ? (double)progress->deadline_s_min : 86400,
        "Until the first deadline of a batch; negative when it has passed, a day without a batch.");
    metrics_one(buf, "quern_batches_stuck", "gauge", (double)progress->batches_stuck,
                "Batches without a result for --stuck-seconds.");
    metrics_one(buf, "quern_batches_at_risk", "gauge", (double)progress->batches_at_risk,
                "Batches that at the rate measured would miss their deadline.");
    metrics_write_nodes(api, progress, buf);
    free(progress);
}

static void write_retention(const struct runner_status *status, struct buf *buf) {
    static const char *const names[DELETED_COUNT] = {"request", "age"};
    metrics_head(buf, "quern_batches_deleted_total", "counter",
                 "Ended batches that were deleted, by a client's request or by their age.");
    for (int why = 0; why < DELETED_COUNT; why++)
        buf_printf(buf, "quern_batches_deleted_total{by=\"%s\"} %" PRIu64 "\n", names[why],
                   status->batches_deleted[why]);
    metrics_one(buf, "quern_deleted_bytes_total", "counter", (double)status->bytes_freed,
                "Bytes of deleted batches: files, orders of results, judgements.");
    metrics_one(buf, "quern_keep_days", "gauge", status->keep_days,
                "Days after which ended batches are deleted; 0: never.");
}

static void write_store(struct api *api, int64_t recovery_ns, struct buf *buf) {
    struct store_status status;
    store_status(api->options.store, &status);
    metrics_one(buf, "quern_log_append_bytes_total", "counter", (double)status.log_append_bytes,
                "Bytes appended to result logs.");
    metrics_one(buf, "quern_log_groups_total", "counter", (double)status.log_groups,
                "Group commits of result logs.");
    metrics_head(buf, "quern_log_fsync_seconds", "histogram",
                 "Time per fdatasync of a result log.");
    metrics_histogram(buf, "quern_log_fsync_seconds", "", &store_sync_bounds,
                      &status.log_sync_seconds);
    metrics_head(buf, "quern_log_group_records", "histogram", "Results per group commit.");
    metrics_histogram(buf, "quern_log_group_records", "", &store_group_bounds,
                      &status.log_group_records);
    metrics_one(buf, "quern_log_corrupt_records_total", "counter",
                (double)status.log_corrupt_records, "Records whose checksum was wrong.");
    metrics_one(buf, "quern_duplicate_results_total", "counter", (double)status.duplicate_results,
                "Results of lines that had one already.");
    metrics_one(buf, "quern_store_free_bytes", "gauge", (double)status.free_bytes,
                "Free bytes on the state directory's file system.");
    metrics_one(buf, "quern_store_size_bytes", "gauge", (double)status.size_bytes,
                "Size of the state directory's file system.");
    metrics_one(buf, "quern_store_reserve_bytes", "gauge", (double)status.reserve_bytes,
                "Bytes kept free for bookkeeping.");
    metrics_one(buf, "quern_store_full", "gauge", status.disk_full,
                "1 while results wait for space.");
    metrics_head(buf, "quern_batch_e2e_seconds", "histogram",
                 "Time from the creation of a batch to its end.");
    for (size_t i = 0; i < STORE_ENDS; i++) {
        char label[32];
        snprintf(label, sizeof label, "status=\"%s\"",
                 batch_status_name((enum batch_status)(BATCH_COMPLETED + i)));
        metrics_histogram(buf, "quern_batch_e2e_seconds", label, &store_batch_bounds,
                          &status.batch_seconds[i]);
    }
    metrics_one(buf, "quern_recovery_seconds", "gauge",
                (double)(status.open_ns + recovery_ns) * 1e-9,
                "Time that this start took to open the state directory and take up its batches.");
    metrics_one(buf, "quern_sqlite_wal_bytes", "gauge", (double)status.wal_bytes,
                "Size of SQLite's write-ahead log.");
}

static void write_webhooks(struct api *api, struct buf *buf) {
    struct notify_status status = {0};
    if (api->options.notify) notify_status(api->options.notify, &status);
    metrics_head(buf, "quern_webhook_deliveries_total", "counter",
                 "Attempts to deliver an event; failed ones are made again.");
    buf_printf(buf,
               "quern_webhook_deliveries_total{outcome=\"succeeded\"} %" PRIu64
               "\nquern_webhook_deliveries_total{outcome=\"failed\"} %" PRIu64
               "\nquern_webhook_deliveries_total{outcome=\"given_up\"} %" PRIu64 "\n",
               status.delivered, status.failed, status.given_up);
    metrics_head(buf, "quern_webhook_seconds", "histogram",
                 "Time per attempt to deliver an event.");
    metrics_histogram(buf, "quern_webhook_seconds", "", &notify_bounds, &status.seconds);
    metrics_one(buf, "quern_webhook_refused_total", "counter", (double)status.refused,
                "Attempts not made because the receiver's address is not on the open internet.");
    metrics_one(buf, "quern_webhook_pending", "gauge", (double)status.open,
                "Events that wait for their delivery.");
}

static double open_descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    double count = -3; /* ".", ".." and the directory itself */
    if (!directory) return 0;
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

static void write_memory(struct buf *buf) {
    char text[256];
    unsigned long long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return;
    if (fgets(text, sizeof text, file) && sscanf(text, "%llu %llu", &pages, &resident) == 2) {
        double page_bytes = (double)sysconf(_SC_PAGESIZE);
        metrics_one(buf, "process_virtual_memory_bytes", "gauge", (double)pages * page_bytes,
                    "Virtual memory size in bytes.");
        metrics_one(buf, "process_resident_memory_bytes", "gauge", (double)resident * page_bytes,
                    "Resident memory size in bytes.");
    }
    fclose(file);
}

/* Appends the metrics of the process, under the names of every Prometheus client library. */
static void write_process(struct api *api, struct buf *buf) {
    struct rusage usage;
    struct rlimit limit;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        metrics_one(buf, "process_cpu_seconds_total", "counter",
                    (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                        (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6,
                    "User and system CPU time spent in seconds.");
    write_memory(buf);
    metrics_one(buf, "process_open_fds", "gauge", open_descriptors(),
                "Number of open file descriptors.");
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        metrics_one(buf, "process_max_fds", "gauge", (double)limit.rlim_cur,
                    "Maximum number of open file descriptors.");
    metrics_one(buf, "process_start_time_seconds", "gauge", (double)api->started_unix_s,
                "Start time of the process since the Unix epoch in seconds.");
}

void metrics_write(struct api *api, struct buf *buf) {
    struct runner_status status;
    runner_status(api->options.runner, &status);
    metrics_head(buf, "quern_build_info", "gauge", "Always 1; the labels say what runs.");
    buf_add_text(buf, "quern_build_info{version=\"" QUERN_VERSION "\"} 1\n");
    write_batches(api, buf);
    write_requests(&api->metrics, buf);
    write_tokens(&api->metrics, &status, buf);
    write_runner(&status, buf);
    write_retention(&status, buf);
    write_progress(api, buf);
    metrics_write_workers(api, buf);
    write_store(api, status.recovery_ns, buf);
    copies_write_metrics(api, buf);
    write_webhooks(api, buf);
    write_http(api, buf);
    write_process(api, buf);
}
