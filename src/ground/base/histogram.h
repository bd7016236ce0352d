/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* histogram: how often values lay in which range, and their sum.
 *
 * The ranges are given by constant bounds, so that histograms of several processes can be added.
 * Counts are per range; the text of /metrics adds them up (api/metrics_text.h).
 *
 * Thread: one, or the lock of its owner.
 * Memory: none of its own.
 * Invariant: a count never falls. */

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_BOUNDS_MAX 23

/* The upper bounds of the ranges, ascending; a value equal to a bound lies below it. */
struct histogram_bounds {
    size_t count;
    double at[HISTOGRAM_BOUNDS_MAX];
};

/* Zero is empty. */
struct histogram {
    uint64_t counts[HISTOGRAM_BOUNDS_MAX + 1]; /* by range; the last used one has no upper bound */
    double sum;
};

void histogram_add(struct histogram *histogram, const struct histogram_bounds *bounds,
                   double value);
/* Adds the counts and the sum of a histogram with the same bounds. */
void histogram_merge(struct histogram *histogram, const struct histogram *more);
