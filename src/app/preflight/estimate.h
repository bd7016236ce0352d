/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* estimate: the arithmetic of a preflight: quantiles of lengths, points of Student's
 * distribution, a length to recommend.
 *
 * Thread: any; the functions are pure.
 * Memory: the caller's. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The smallest value that at least a share (0..1) of the sorted values does not exceed; 0 without
 * values. */
uint32_t estimate_quantile(const uint32_t *sorted, size_t count, double share);

struct interval {
    double low, mean, high;
    bool is_known; /* `low` and `high` count: there were at least two measurements */
};

/* The two-sided 95 % point of Student's distribution with `freedom` (from 1) degrees. */
double estimate_t(size_t freedom);
/* The interval with a further, independent uncertainty: the true value may be `down` (0..1) or `up`
 * (from 1) times the one it has. Uncertainties are ratios, so their logarithms add up as squares.
 * An interval that is not known stays as it is. */
struct interval estimate_widened(struct interval interval, double down, double up);
/* All three times `factor`. */
struct interval estimate_scaled(struct interval interval, double factor);

#define ESTIMATE_BINS 12

/* Counts lengths in bins that double: [0,64), [64,128), …; the last one is open. */
void estimate_histogram(const uint32_t *lengths, size_t count, uint64_t ret_bins[ESTIMATE_BINS]);
uint32_t estimate_bin_start(size_t bin);

/* `length` plus 500 tokens, rounded up to a multiple of 128. */
uint32_t estimate_roomy(uint32_t length);
