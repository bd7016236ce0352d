/* SPDX-License-Identifier: Apache-2.0 */

/* The metrics of requests' times and sizes, per worker: quern's own, and with --metrics-compat vllm
 * the same numbers under vLLM's names, so that boards and autoscalers made for vLLM work.
 *
 * quern's own series tell requests of clients from lines of batches by the label `source`. vLLM has
 * no such label: its latencies are those of clients alone, because a line that waited for an hour
 * would hide them; its sizes, tokens and ends are those of all requests. */

#include "api/api_internal.h"
#include "api/metrics_text.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LABELS_BYTES (2 * MODEL_NAME_BYTES + 64)

static const char *const origin_names[TIMING_ORIGINS] = {"client", "batch"};
static const char *const end_names[TIMING_ENDS] = {"stop", "length", "cancelled", "error"};
/* vLLM's words for the same ends. */
static const char *const vllm_end_names[TIMING_ENDS] = {"stop", "length", "abort", "error"};

/* Names without their prefix: "quern_" or "vllm:". */
static const struct {
    const char *name, *help;
} timing_texts[TIMING_COUNT] = {
    [TIMING_FIRST_TOKEN] = {"time_to_first_token_seconds",
                            "From a request's arrival at its worker to its first token."},
    [TIMING_BETWEEN_TOKENS] = {"inter_token_latency_seconds", "Between two tokens of an answer."},
    [TIMING_PER_TOKEN] = {"request_time_per_output_token_seconds",
                          "Decode time by the tokens after the first, per request."},
    [TIMING_WHOLE] = {"e2e_request_latency_seconds",
                      "From a request's arrival at its worker to its end."},
    [TIMING_QUEUE] = {"request_queue_time_seconds",
                      "From a request's arrival at its worker to its start."},
    [TIMING_INFERENCE] = {"request_inference_time_seconds",
                          "From a request's start to its last token."},
    [TIMING_PREFILL] = {"request_prefill_time_seconds",
                        "From a request's start to its first token."},
    [TIMING_DECODE] = {"request_decode_time_seconds", "From a request's first token to its last."},
    [TIMING_PROMPT_TOKENS] = {"request_prompt_tokens", "Prompt tokens per request."},
    [TIMING_GENERATED_TOKENS] = {"request_generation_tokens", "Generated tokens per request."},
    [TIMING_MAX_TOKENS] = {"request_params_max_tokens", "Limit of generated tokens per request."},
    [TIMING_CHOICES] = {"request_params_n", "Answers asked for per request."},
};

static bool fills(const struct runner_timings *worker, int timing) {
    return worker->filled >> timing & 1;
}

/* True for an engine process: it alone knows starts, steps and how requests ended. */
static bool is_engine(const struct runner_timings *worker) {
    return fills(worker, TIMING_QUEUE) && fills(worker, TIMING_DECODE);
}

static void write_timing(struct buf *buf, const struct runner_timings *workers, size_t count,
                         int timing) {
    char name[64], labels[64];
    snprintf(name, sizeof name, "quern_%s", timing_texts[timing].name);
    metrics_head(buf, name, "histogram", timing_texts[timing].help);
    for (size_t i = 0; i < count; i++)
        for (int origin = 0; origin < TIMING_ORIGINS && fills(&workers[i], timing); origin++) {
            snprintf(labels, sizeof labels, "engine=\"%zu\",source=\"%s\"", i,
                     origin_names[origin]);
            metrics_histogram(buf, name, labels, &timing_bounds[timing],
                              &workers[i].timings.of[origin][timing]);
        }
}

static void write_ends(struct buf *buf, const struct runner_timings *workers, size_t count) {
    metrics_head(buf, "quern_engine_requests_total", "counter",
                 "Requests that an engine ended, by how they ended.");
    for (size_t i = 0; i < count; i++)
        for (int origin = 0; origin < TIMING_ORIGINS && is_engine(&workers[i]); origin++)
            for (int end = 0; end < TIMING_ENDS; end++)
                buf_printf(buf,
                           "quern_engine_requests_total{engine=\"%zu\",source=\"%s\","
                           "reason=\"%s\"} %" PRIu64 "\n",
                           i, origin_names[origin], end_names[end],
                           workers[i].timings.ends[origin][end]);
}

static void write_own(struct buf *buf, const struct runner_timings *workers, size_t count) {
    metrics_head(buf, "quern_engine_info", "gauge", "Always 1; names the model of the engine.");
    for (size_t i = 0; i < count; i++) {
        buf_printf(buf, "quern_engine_info{engine=\"%zu\",model=\"", i);
        metrics_label(buf, workers[i].model);
        buf_add_text(buf, "\"} 1\n");
    }
    for (int timing = 0; timing < TIMING_COUNT; timing++) write_timing(buf, workers, count, timing);
    metrics_head(buf, "quern_iteration_tokens", "histogram", "Tokens computed per step.");
    for (size_t i = 0; i < count; i++) {
        char labels[64];
        if (!is_engine(&workers[i])) continue;
        snprintf(labels, sizeof labels, "engine=\"%zu\"", i);
        metrics_histogram(buf, "quern_iteration_tokens", labels, &timing_step_bounds,
                          &workers[i].timings.step_tokens);
    }
    write_ends(buf, workers, count);
}

/* --- vLLM's names --- */

enum vllm_value {
    VLLM_RUNNING,
    VLLM_WAITING,
    VLLM_KV_USED,
    VLLM_PROMPT,
    VLLM_GENERATED,
    VLLM_CACHED,
    VLLM_QUERIES,
    VLLM_HITS,
    VLLM_PREEMPTIONS,
    VLLM_DRAFTS,
    VLLM_DRAFT_TOKENS,
    VLLM_ACCEPTED,
    VLLM_VALUES
};

static const struct {
    const char *name, *type, *help;
} vllm_texts[VLLM_VALUES] = {
    [VLLM_RUNNING] = {"vllm:num_requests_running", "gauge", "Sequences being computed."},
    [VLLM_WAITING] = {"vllm:num_requests_waiting", "gauge", "Requests accepted and not running."},
    [VLLM_KV_USED] = {"vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1."},
    [VLLM_PROMPT] = {"vllm:prompt_tokens_total", "counter", "Prompt tokens, cached ones included."},
    [VLLM_GENERATED] = {"vllm:generation_tokens_total", "counter", "Tokens generated."},
    [VLLM_CACHED] = {"vllm:prompt_tokens_cached_total", "counter",
                     "Prompt tokens found in the prefix cache."},
    [VLLM_QUERIES] = {"vllm:prefix_cache_queries_total", "counter",
                      "Prompt tokens looked up in the prefix cache."},
    [VLLM_HITS] = {"vllm:prefix_cache_hits_total", "counter",
                   "Prompt tokens found in the prefix cache."},
    [VLLM_PREEMPTIONS] = {"vllm:num_preemptions_total", "counter",
                          "Sequences that lost their KV cache and were continued later."},
    [VLLM_DRAFTS] = {"vllm:spec_decode_num_drafts_total", "counter",
                     "Guesses of next tokens that the model checked."},
    [VLLM_DRAFT_TOKENS] = {"vllm:spec_decode_num_draft_tokens_total", "counter",
                           "Tokens of these guesses."},
    [VLLM_ACCEPTED] = {"vllm:spec_decode_num_accepted_tokens_total", "counter",
                       "Tokens of these that were right."},
};

static double vllm_value(const struct worker_status *status, int value) {
    switch (value) {
    case VLLM_RUNNING: return status->running;
    case VLLM_WAITING: return status->waiting;
    case VLLM_KV_USED: return status->kv_used;
    case VLLM_PROMPT: return (double)status->prompt_tokens;
    case VLLM_GENERATED: return (double)status->completion_tokens;
    case VLLM_QUERIES: return (double)status->prefix_queries;
    case VLLM_PREEMPTIONS: return (double)status->preemptions;
    case VLLM_DRAFTS: return (double)status->drafts;
    case VLLM_DRAFT_TOKENS: return (double)status->draft_tokens;
    case VLLM_ACCEPTED: return (double)status->accepted_tokens;
    default: return (double)status->cached_tokens;
    }
}

/* Writes `model_name="…",engine="…"`. */
static void write_vllm_labels(char ret_labels[LABELS_BYTES], const struct runner_timings *worker,
                              size_t index) {
    struct buf buf;
    buf_init(&buf, LABELS_BYTES - 1);
    buf_add_text(&buf, "model_name=\"");
    metrics_label(&buf, worker->model);
    buf_printf(&buf, "\",engine=\"%zu\"", index);
    snprintf(ret_labels, LABELS_BYTES, "%.*s", STR_ARGS(buf_str(&buf)));
    buf_release(&buf);
}

static void write_vllm_histogram(struct buf *buf, const struct runner_timings *worker,
                                 const char *labels, int timing) {
    char name[64];
    snprintf(name, sizeof name, "vllm:%s", timing_texts[timing].name);
    struct histogram sum = worker->timings.of[TIMING_CLIENT][timing];
    if (timing >= TIMING_PROMPT_TOKENS)
        histogram_merge(&sum, &worker->timings.of[TIMING_LINE][timing]);
    metrics_histogram(buf, name, labels, &timing_bounds[timing], &sum);
}

static void write_vllm_ends(struct buf *buf, const struct runner_timings *workers, size_t count) {
    char labels[LABELS_BYTES];
    metrics_head(buf, "vllm:request_success_total", "counter", "Requests by how they ended.");
    for (size_t i = 0; i < count; i++) {
        if (!is_engine(&workers[i])) continue;
        write_vllm_labels(labels, &workers[i], i);
        for (int end = 0; end < TIMING_ENDS; end++)
            buf_printf(buf, "vllm:request_success_total{%s,finished_reason=\"%s\"} %" PRIu64 "\n",
                       labels, vllm_end_names[end],
                       workers[i].timings.ends[TIMING_CLIENT][end] +
                           workers[i].timings.ends[TIMING_LINE][end]);
    }
}

static void write_vllm(struct buf *buf, const struct runner_timings *workers,
                       const struct worker_status *statuses, size_t count) {
    char labels[LABELS_BYTES];
    for (int value = 0; value < VLLM_VALUES; value++) {
        metrics_head(buf, vllm_texts[value].name, vllm_texts[value].type, vllm_texts[value].help);
        for (size_t i = 0; i < count; i++) {
            write_vllm_labels(labels, &workers[i], i);
            buf_printf(buf, "%s{%s} %.17g\n", vllm_texts[value].name, labels,
                       vllm_value(&statuses[i], value));
        }
    }
    for (int timing = 0; timing < TIMING_COUNT; timing++) {
        buf_printf(buf, "# HELP vllm:%s %s\n# TYPE vllm:%s histogram\n", timing_texts[timing].name,
                   timing_texts[timing].help, timing_texts[timing].name);
        for (size_t i = 0; i < count; i++) {
            write_vllm_labels(labels, &workers[i], i);
            if (fills(&workers[i], timing)) write_vllm_histogram(buf, &workers[i], labels, timing);
        }
    }
    metrics_head(buf, "vllm:iteration_tokens_total", "histogram", "Tokens computed per step.");
    for (size_t i = 0; i < count; i++) {
        write_vllm_labels(labels, &workers[i], i);
        if (is_engine(&workers[i]))
            metrics_histogram(buf, "vllm:iteration_tokens_total", labels, &timing_step_bounds,
                              &workers[i].timings.step_tokens);
    }
    write_vllm_ends(buf, workers, count);
}

void metrics_write_timings(struct api *api, const struct worker_status *statuses, size_t count,
                           struct buf *buf) {
    struct runner_timings *workers = mem_new(count + 1, sizeof *workers);
    for (size_t i = 0; i < count; i++) runner_worker_timings(api->options.runner, i, &workers[i]);
    write_own(buf, workers, count);
    if (api->options.vllm_metrics) write_vllm(buf, workers, statuses, count);
    free(workers);
}
