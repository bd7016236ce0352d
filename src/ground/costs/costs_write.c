/* SPDX-License-Identifier: Apache-2.0 */
#include "costs/costs.h"

#include "base/str.h"
#include "json/json.h"

#include <inttypes.h>
#include <math.h>

static const char *const source_names[] = {NULL, "given", "measured"};

void cost_seconds_write(struct buf *buf, double seconds) {
    if (seconds < 120)
        buf_printf(buf, "%.1f s", seconds);
    else if (seconds < 7200)
        buf_printf(buf, "%.0f min", seconds / 60);
    else
        buf_printf(buf, "%.1f h", seconds / 3600);
}

/* --- JSON --- */

static void add_range(struct buf *buf, const char *name, struct cost_range range, double times,
                      bool is_known, bool is_measured) {
    buf_printf(buf, "\"%s\":", name);
    if (!is_known)
        buf_add_text(buf, "null");
    else if (is_measured)
        buf_printf(buf, "%.6g", range.mean * times);
    else
        buf_printf(buf, "{\"low\":%.6g,\"mean\":%.6g,\"high\":%.6g}", range.low * times,
                   range.mean * times, range.high * times);
}

static int64_t times_nanos(int64_t nanos, int64_t times) {
    return nanos > 0 && times > 0 && nanos > INT64_MAX / times ? INT64_MAX : nanos * times;
}

static void add_amount(struct buf *buf, const char *name, struct cost_amount amount, int64_t times,
                       bool is_measured) {
    buf_printf(buf, ",\"%s\":", name);
    if (amount.mean == NANOS_NOT_KNOWN) {
        buf_add_text(buf, "null");
        return;
    }
    if (is_measured) {
        nanos_write_json(buf, times_nanos(amount.mean, times));
        return;
    }
    buf_add_text(buf, "{\"low\":");
    nanos_write_json(buf, times_nanos(amount.low, times));
    buf_add_text(buf, ",\"mean\":");
    nanos_write_json(buf, times_nanos(amount.mean, times));
    buf_add_text(buf, ",\"high\":");
    nanos_write_json(buf, times_nanos(amount.high, times));
    buf_add_byte(buf, '}');
}

static void add_bill(struct buf *buf, const char *name, const struct cost_bill *bill, int64_t times,
                     bool is_measured) {
    buf_printf(buf, ",\"%s\":", name);
    if (times == 0) {
        buf_add_text(buf, "null");
        return;
    }
    buf_add_byte(buf, '{');
    add_range(buf, "seconds", bill->seconds, (double)times, bill->has_seconds, is_measured);
    buf_add_byte(buf, ',');
    add_range(buf, "watt_hours", bill->watt_hours, (double)times, bill->has_energy, is_measured);
    add_amount(buf, "electricity", bill->electricity, times, is_measured);
    add_amount(buf, "rented_gpu", bill->rented, times, is_measured);
    add_amount(buf, "managed_api", bill->api, times, is_measured);
    buf_add_byte(buf, '}');
}

static struct cost_range less(struct cost_range a, struct cost_range b) {
    return (struct cost_range){fmax(a.low - b.low, 0), fmax(a.mean - b.mean, 0),
                               fmax(a.high - b.high, 0)};
}

static void add_saved(struct buf *buf, const struct cost_job *job, const struct costs *costs) {
    uint64_t saved = job->cached_tokens + job->deduplicated_input_tokens;
    buf_add_text(buf, ",\"saved\":{\"deduplicated_requests\":");
    if (job->deduplicated == COST_COUNT_NOT_KNOWN)
        buf_add_text(buf, "null");
    else
        buf_printf(buf, "%" PRIu64, job->deduplicated);
    buf_printf(buf, ",\"input_tokens_asked\":%" PRIu64 ",\"input_tokens_computed\":%" PRIu64 ",",
               job->input_tokens, saved < job->input_tokens ? job->input_tokens - saved : 0);
    add_range(buf, "output_tokens_asked", job->output_tokens, 1, true, job->is_measured);
    buf_add_byte(buf, ',');
    add_range(buf, "output_tokens_computed",
              less(job->output_tokens, job->deduplicated_output_tokens), 1, true, job->is_measured);
    buf_add_byte(buf, ',');
    add_range(buf, "seconds", less(costs->unshared.seconds, costs->shared.seconds), 1,
              costs->unshared.has_seconds, job->is_measured);
    buf_add_byte(buf, '}');
}

void costs_write_json(struct buf *buf, const struct cost_job *job, const struct prices *prices,
                      const struct costs *costs) {
    const char *source = source_names[costs->power_source];
    buf_add_text(buf, "{\"currency\":");
    json_write_string(buf, str_from(prices_currency(prices)));
    buf_add_text(buf, ",\"times_per_month\":");
    if (prices->times_per_month > 0)
        buf_printf(buf, "%" PRId64, prices->times_per_month);
    else
        buf_add_text(buf, "null");
    if (source)
        buf_printf(buf, ",\"power\":{\"source\":\"%s\",\"watts\":%.6g}", source, costs->watts);
    else
        buf_add_text(buf, ",\"power\":null");
    add_bill(buf, "once", &costs->shared, 1, job->is_measured);
    add_bill(buf, "per_month", &costs->shared, prices->times_per_month, job->is_measured);
    add_bill(buf, "once_without_sharing", &costs->unshared, 1, job->is_measured);
    add_bill(buf, "per_month_without_sharing", &costs->unshared, prices->times_per_month,
             job->is_measured);
    add_saved(buf, job, costs);
    buf_add_byte(buf, '}');
}

/* --- lines for people --- */

static void add_money(struct buf *buf, struct cost_amount amount, int64_t times, bool is_measured) {
    nanos_write_text(buf, times_nanos(amount.mean, times));
    if (is_measured || amount.low == amount.high) return;
    buf_add_text(buf, " (");
    nanos_write_text(buf, times_nanos(amount.low, times));
    buf_add_text(buf, " to ");
    nanos_write_text(buf, times_nanos(amount.high, times));
    buf_add_byte(buf, ')');
}

static void add_price_line(struct buf *buf, const char *label, struct cost_amount shared,
                           struct cost_amount unshared, const struct cost_job *job,
                           const struct prices *prices) {
    const char *currency = prices_currency(prices);
    if (shared.mean == NANOS_NOT_KNOWN) return;
    buf_printf(buf, "%-12s", label);
    add_money(buf, shared, 1, job->is_measured);
    buf_printf(buf, " %s", currency);
    if (unshared.mean != NANOS_NOT_KNOWN && unshared.mean != shared.mean) {
        buf_add_text(buf, ", without sharing ");
        nanos_write_text(buf, unshared.mean);
    }
    if (prices->times_per_month > 0) {
        buf_printf(buf, "; %" PRId64 " times per month ", prices->times_per_month);
        add_money(buf, shared, prices->times_per_month, job->is_measured);
        buf_printf(buf, " %s", currency);
    }
    buf_add_byte(buf, '\n');
}

static void add_saved_line(struct buf *buf, const struct cost_job *job, const struct costs *costs) {
    uint64_t saved = job->cached_tokens + job->deduplicated_input_tokens;
    double answers = job->deduplicated_output_tokens.mean;
    if (saved == 0 && answers <= 0) return;
    buf_printf(buf, "Saved       %" PRIu64 " of %" PRIu64 " prompt tokens not computed again",
               saved, job->input_tokens);
    if (job->deduplicated != COST_COUNT_NOT_KNOWN)
        buf_printf(buf, ", %" PRIu64 " %s answered as an equal one", job->deduplicated,
                   plural(job->deduplicated, "request", "requests"));
    else if (answers > 0)
        buf_printf(buf, ", %.0f tokens of answers used again", answers);
    if (costs->unshared.has_seconds) {
        buf_add_text(buf, "; about ");
        cost_seconds_write(buf, fmax(costs->unshared.seconds.mean - costs->shared.seconds.mean, 0));
    }
    buf_add_byte(buf, '\n');
}

void costs_write_text(struct buf *buf, const struct cost_job *job, const struct prices *prices,
                      const struct costs *costs) {
    add_saved_line(buf, job, costs);
    if (costs->shared.has_energy) {
        const struct cost_range *wh = &costs->shared.watt_hours;
        buf_printf(buf, "Energy      %.4g Wh", wh->mean);
        if (!job->is_measured) buf_printf(buf, " (%.4g to %.4g)", wh->low, wh->high);
        buf_printf(buf, " at %.4g W, %s\n", costs->watts,
                   costs->power_source == POWER_GIVEN ? "as given"
                                                      : "as the machine's counters report");
    }
    add_price_line(buf, "Electricity", costs->shared.electricity, costs->unshared.electricity, job,
                   prices);
    add_price_line(buf, "Rented GPU", costs->shared.rented, costs->unshared.rented, job, prices);
    add_price_line(buf, "Managed API", costs->shared.api, costs->unshared.api, job, prices);
}
