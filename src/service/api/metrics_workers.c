/* SPDX-License-Identifier: Apache-2.0 */

/* The metrics of workers: a series per engine, and a series per upstream. */

#include "api/api_internal.h"
#include "api/metrics_text.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum worker_value { VALUE_FLAG, VALUE_U32, VALUE_U64, VALUE_MS_AS_S, VALUE_SHARE };

/* A metric with one value per worker, at `offset` of struct worker_status. */
struct worker_metric {
    const char *name, *type, *help;
    enum worker_value value;
    size_t offset;
};
#define AT(member) offsetof(struct worker_status, member)

static const struct worker_metric engine_metrics[] = {
    {"quern_engine_up", "gauge", "1 when the engine takes jobs.", VALUE_FLAG, AT(ready)},
    {"quern_engine_restarts_total", "counter", "Restarts of the engine.", VALUE_U64, AT(restarts)},
    {"quern_engine_running", "gauge", "Sequences being computed.", VALUE_U32, AT(running)},
    {"quern_engine_waiting", "gauge", "Jobs accepted and not yet running.", VALUE_U32, AT(waiting)},
    {"quern_engine_steps_total", "counter", "Steps of the engine.", VALUE_U64, AT(steps)},
    {"quern_engine_prompt_tokens_total", "counter",
     "Prompt tokens of started requests, cached ones included.", VALUE_U64, AT(prompt_tokens)},
    {"quern_engine_cached_tokens_total", "counter", "Prompt tokens found in the prefix cache.",
     VALUE_U64, AT(cached_tokens)},
    {"quern_engine_prefix_queries_total", "counter", "Prompt tokens looked up in the prefix cache.",
     VALUE_U64, AT(prefix_queries)},
    {"quern_engine_prefix_hits_total", "counter", "Of these, tokens that were found.", VALUE_U64,
     AT(cached_tokens)},
    {"quern_engine_preemptions_total", "counter",
     "Sequences that lost their KV cache and were continued later.", VALUE_U64, AT(preemptions)},
    {"quern_engine_generated_tokens_total", "counter", "Tokens generated.", VALUE_U64,
     AT(completion_tokens)},
    {"quern_engine_nonfinite_rows_total", "counter",
     "Rows whose logits had NaN or infinity; a sound model on a sound device gives none.",
     VALUE_U64, AT(nonfinite_rows)},
    {"quern_engine_spec_decode_drafts_total", "counter",
     "Guesses of next tokens that the model checked.", VALUE_U64, AT(drafts)},
    {"quern_engine_spec_decode_draft_tokens_total", "counter", "Tokens of these guesses.",
     VALUE_U64, AT(draft_tokens)},
    {"quern_engine_spec_decode_accepted_tokens_total", "counter",
     "Tokens of these that were right.", VALUE_U64, AT(accepted_tokens)},
    {"quern_engine_states_stored", "gauge",
     "States of recurrent layers that are stored, each for the prompts that begin with one prefix.",
     VALUE_U32, AT(states_stored)},
    {"quern_engine_state_saves_total", "counter", "States that were saved.", VALUE_U64,
     AT(state_saves)},
    {"quern_engine_state_hits_total", "counter", "Sequences that began at a stored state.",
     VALUE_U64, AT(state_hits)},
    {"quern_engine_state_evictions_total", "counter", "Stored states forgotten for want of memory.",
     VALUE_U64, AT(state_evictions)},
    {"quern_engine_step_age_seconds", "gauge", "Since a step ended, while there are jobs.",
     VALUE_MS_AS_S, AT(step_age_ms)},
    {"quern_engine_token_age_seconds", "gauge",
     "Of the running request whose last token is the oldest.", VALUE_MS_AS_S, AT(token_age_ms)},
    {"quern_engine_step_seconds_max", "gauge", "The longest step so far.", VALUE_MS_AS_S,
     AT(step_ms_max)},
    {"quern_engine_kv_used_ratio", "gauge", "Share of the KV cache in use.", VALUE_SHARE,
     AT(kv_used)},
};

static const struct worker_metric upstream_metrics[] = {
    {"quern_upstream_up", "gauge", "1 when the upstream takes requests.", VALUE_FLAG, AT(ready)},
    {"quern_upstream_key_refused", "gauge", "1 while it answers 401, 402 or 403 to everything.",
     VALUE_FLAG, AT(is_key_refused)},
    {"quern_upstream_limit", "gauge", "Requests that may be in flight now.", VALUE_U32, AT(limit)},
    {"quern_upstream_inflight", "gauge", "Requests in flight.", VALUE_U32, AT(running)},
    {"quern_upstream_waiting", "gauge", "Requests that wait to be sent.", VALUE_U32, AT(waiting)},
    {"quern_upstream_answers_total", "counter", "Exchanges that ended.", VALUE_U64, AT(steps)},
    {"quern_upstream_refusals_total", "counter",
     "Requests that were not run: 429, 503, or no connection.", VALUE_U64, AT(refusals)},
    {"quern_upstream_retries_total", "counter",
     "Requests that failed and were given back to be tried again.", VALUE_U64, AT(faults)},
    {"quern_upstream_breaker_openings_total", "counter",
     "Times nothing but probes was sent any more.", VALUE_U64, AT(openings)},
};

static void write_value(struct buf *buf, const struct worker_metric *metric,
                        const struct worker_status *status) {
    const void *at = (const char *)status + metric->offset;
    switch (metric->value) {
    case VALUE_FLAG: buf_printf(buf, "%d\n", *(const bool *)at); break;
    case VALUE_U32: buf_printf(buf, "%" PRIu32 "\n", *(const uint32_t *)at); break;
    case VALUE_U64: buf_printf(buf, "%" PRIu64 "\n", *(const uint64_t *)at); break;
    case VALUE_MS_AS_S: buf_printf(buf, "%.3f\n", (double)*(const int64_t *)at / 1000); break;
    case VALUE_SHARE: buf_printf(buf, "%.6g\n", *(const double *)at); break;
    }
}

static void per_engine(struct buf *buf, const struct worker_metric *metric,
                       const struct worker_status *statuses, size_t count) {
    metrics_head(buf, metric->name, metric->type, metric->help);
    for (size_t i = 0; i < count; i++) {
        if (statuses[i].is_vacant) continue; /* it is no engine that is down */
        buf_printf(buf, "%s{engine=\"%zu\"} ", metric->name, i);
        write_value(buf, metric, &statuses[i]);
    }
}

static void per_upstream(struct buf *buf, const struct worker_metric *metric,
                         const struct worker_status *statuses, size_t count) {
    metrics_head(buf, metric->name, metric->type, metric->help);
    for (size_t i = 0; i < count; i++) {
        if (!statuses[i].upstream) continue;
        buf_printf(buf, "%s{upstream=\"%s\"} ", metric->name, statuses[i].upstream);
        write_value(buf, metric, &statuses[i]);
    }
}

static void write_breakers(struct buf *buf, const struct worker_status *statuses, size_t count) {
    static const char *const breakers[] = {"closed", "open", "half_open"};
    metrics_head(buf, "quern_upstream_breaker", "gauge", "1 at the state of the circuit breaker.");
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < 3 && statuses[i].upstream; j++)
            buf_printf(buf, "quern_upstream_breaker{upstream=\"%s\",state=\"%s\"} %d\n",
                       statuses[i].upstream, breakers[j],
                       statuses[i].breaker && strcmp(statuses[i].breaker, breakers[j]) == 0);
}

void metrics_write_workers(struct api *api, struct buf *buf) {
    struct worker_status *statuses = mem_new(RUNNER_WORKERS_MAX, sizeof *statuses);
    size_t count = runner_worker_statuses(api->options.runner, statuses, RUNNER_WORKERS_MAX);
    for (size_t i = 0; i < sizeof engine_metrics / sizeof *engine_metrics; i++)
        per_engine(buf, &engine_metrics[i], statuses, count);
    for (size_t i = 0; i < sizeof upstream_metrics / sizeof *upstream_metrics; i++)
        per_upstream(buf, &upstream_metrics[i], statuses, count);
    write_breakers(buf, statuses, count);
    metrics_write_timings(api, statuses, count, buf);
    metrics_write_cards(api, statuses, count, buf);
    free(statuses);
}
