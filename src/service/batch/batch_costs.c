/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/batch_costs.h"

#include "batch/state.h"

#include <math.h>

static struct cost_range measured(double value) {
    return (struct cost_range){value, value, value};
}

/* Prompt tokens that were taken from the prefix cache while their request was computed. */
static uint64_t cached_tokens(const struct usage *usage) {
    uint64_t ran = usage->input_tokens - usage->reused_input_tokens;
    if (usage->input_tokens == 0) return 0;
    return (uint64_t)llround((double)usage->cached_tokens * (double)ran /
                             (double)usage->input_tokens);
}

struct cost_job batch_cost_job(const struct usage *usage, double seconds, double load_seconds) {
    uint64_t cached = cached_tokens(usage);
    double asked = (double)(usage->input_tokens + usage->output_tokens);
    double computed =
        asked - (double)(cached + usage->reused_input_tokens + usage->reused_output_tokens);
    double unshared = computed > 0 ? load_seconds + seconds * asked / computed : 0;
    return (struct cost_job){.is_measured = true,
                             .has_seconds = seconds > 0,
                             .seconds = measured(load_seconds + seconds),
                             .has_unshared = seconds > 0 && computed > 0,
                             .seconds_unshared = measured(unshared),
                             .measured_watts = NAN,
                             .deduplicated = COST_COUNT_NOT_KNOWN,
                             .input_tokens = usage->input_tokens,
                             .cached_tokens = cached,
                             .deduplicated_input_tokens = usage->reused_input_tokens,
                             .output_tokens = measured((double)usage->output_tokens),
                             .deduplicated_output_tokens =
                                 measured((double)usage->reused_output_tokens)};
}

/* When the last line had ended. */
static int64_t end_of(const struct store_batch *batch) {
    if (batch->finalizing_unix_s > 0) return batch->finalizing_unix_s;
    if (batch->cancelled_unix_s > 0) return batch->cancelled_unix_s;
    return batch->expired_unix_s > 0 ? batch->expired_unix_s : batch->completed_unix_s;
}

void batch_costs_write(struct buf *buf, const struct store_batch *batch,
                       const struct prices *prices) {
    struct prices none;
    struct costs costs;
    bool has_ended = batch_status_is_terminal(batch->status) && batch->has_usage;
    if (!has_ended) {
        buf_add_text(buf, "null");
        return;
    }
    if (!prices) {
        prices_init(&none);
        prices = &none;
    }
    int64_t from_s = batch->in_progress_unix_s, to_s = end_of(batch);
    /* Times are whole seconds: a batch that ran shorter counts as one. */
    double seconds = from_s > 0 && to_s >= from_s ? fmax((double)(to_s - from_s), 1) : 0;
    struct cost_job job = batch_cost_job(&batch->usage, seconds, 0);
    costs_count(&job, prices, &costs);
    costs_write_json(buf, &job, prices, &costs);
}
