/* SPDX-License-Identifier: Apache-2.0 */
#include "costs/costs.h"

#include <math.h>

#define SECONDS_PER_HOUR 3600.0
#define WATT_HOURS_PER_KWH 1000.0

static struct cost_range scaled(struct cost_range range, double factor) {
    return (struct cost_range){range.low * factor, range.mean * factor, range.high * factor};
}

static struct cost_amount amount_of(struct cost_range range, double price, bool is_known) {
    if (!is_known) return (struct cost_amount){NANOS_NOT_KNOWN, NANOS_NOT_KNOWN, NANOS_NOT_KNOWN};
    return (struct cost_amount){nanos_of(range.low * price), nanos_of(range.mean * price),
                                nanos_of(range.high * price)};
}

static void count_time(struct cost_bill *bill, const struct prices *prices, double watts) {
    double speed = price_is_given(prices->rent_speed) ? prices->rent_speed : 1;
    bill->has_energy = bill->has_seconds && !isnan(watts);
    if (bill->has_energy) bill->watt_hours = scaled(bill->seconds, watts / SECONDS_PER_HOUR);
    bill->electricity = amount_of(bill->watt_hours, prices->per_kwh / WATT_HOURS_PER_KWH,
                                  bill->has_energy && price_is_given(prices->per_kwh));
    bill->rented =
        amount_of(bill->seconds, speed > 0 ? prices->rent_per_hour / SECONDS_PER_HOUR / speed : 0,
                  bill->has_seconds && price_is_given(prices->rent_per_hour) && speed > 0);
}

static struct cost_amount count_api(const struct cost_job *job, const struct prices *prices,
                                    double cached_tokens) {
    double input = (double)job->input_tokens;
    return (struct cost_amount){
        prices_of_tokens(prices, input, cached_tokens, job->output_tokens.low),
        prices_of_tokens(prices, input, cached_tokens, job->output_tokens.mean),
        prices_of_tokens(prices, input, cached_tokens, job->output_tokens.high)};
}

void costs_count(const struct cost_job *job, const struct prices *prices, struct costs *ret_costs) {
    struct costs costs = {.power_source = POWER_NOT_KNOWN, .watts = NAN};
    bool has_api =
        price_is_given(prices->input_per_million) || price_is_given(prices->output_per_million);
    if (price_is_given(prices->watts)) {
        costs.power_source = POWER_GIVEN;
        costs.watts = prices->watts;
    } else if (!isnan(job->measured_watts)) {
        costs.power_source = POWER_MEASURED;
        costs.watts = job->measured_watts;
    }
    costs.shared.has_seconds = job->has_seconds;
    costs.shared.seconds = job->seconds;
    costs.unshared.has_seconds = job->has_seconds && job->has_unshared;
    costs.unshared.seconds = job->seconds_unshared;
    count_time(&costs.shared, prices, costs.watts);
    count_time(&costs.unshared, prices, costs.watts);
    costs.shared.api = costs.unshared.api = amount_of((struct cost_range){0, 0, 0}, 0, false);
    if (has_api) {
        costs.shared.api = count_api(job, prices, (double)job->cached_tokens);
        costs.unshared.api = count_api(job, prices, 0);
    }
    *ret_costs = costs;
}
