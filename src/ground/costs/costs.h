/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* costs: the time, energy and money of a job, before it runs as ranges, after it as figures.
 *
 * A job is told twice: as it runs here, and as it would run without sharing, where no prefix of a
 * prompt is taken from the cache and no answer of an equal request is used again. A managed API
 * bills all tokens that are asked; prompts that share a beginning get its price of cached tokens.
 *
 * Thread: any; pure.
 * Memory: plain structs. */

#include "costs/prices.h"

/* For a figure before it is measured; afterwards all three are equal. */
struct cost_range {
    double low, mean, high;
};

enum power_source { POWER_NOT_KNOWN, POWER_GIVEN, POWER_MEASURED };

#define COST_COUNT_NOT_KNOWN UINT64_MAX

/* What is priced. */
struct cost_job {
    bool is_measured;                   /* the job has run: ranges are single figures */
    bool has_seconds;                   /* the next one counts */
    struct cost_range seconds;          /* on this machine */
    struct cost_range seconds_unshared; /* on this machine without sharing */
    bool has_unshared;                  /* seconds_unshared counts */
    double measured_watts;  /* mean of the machine's counters at work; NAN: it has none */
    uint64_t deduplicated;  /* requests that were not run; or COST_COUNT_NOT_KNOWN */
    uint64_t input_tokens;  /* asked */
    uint64_t cached_tokens; /* input tokens from the prefix cache */
    uint64_t deduplicated_input_tokens;           /* not computed, since requests are equal */
    struct cost_range output_tokens;              /* asked */
    struct cost_range deduplicated_output_tokens; /* likewise */
};

/* One way to count; nanos. Not known: NANOS_NOT_KNOWN in all three. */
struct cost_amount {
    int64_t low, mean, high;
};

/* What one run of the job costs, with or without sharing. */
struct cost_bill {
    bool has_seconds, has_energy;
    struct cost_range seconds, watt_hours;
    struct cost_amount electricity, rented, api;
};

struct costs {
    enum power_source power_source;
    double watts; /* NAN: not known */
    struct cost_bill shared, unshared;
};

void costs_count(const struct cost_job *job, const struct prices *prices, struct costs *ret_costs);

/* Appends one JSON object; a figure that is not known is null. */
void costs_write_json(struct buf *buf, const struct cost_job *job, const struct prices *prices,
                      const struct costs *costs);
/* Appends lines for people, with labels of 12 columns; a figure that is not known has no line. */
void costs_write_text(struct buf *buf, const struct cost_job *job, const struct prices *prices,
                      const struct costs *costs);
/* Appends a time: 12.3 s, 45 min, 7.5 h. */
void cost_seconds_write(struct buf *buf, double seconds);
