/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* estimate: the arithmetic of a preflight: quantiles of lengths, a confidence interval of a mean
 * from few measurements, a length to recommend.
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

/* Student's t interval of the mean with 95 % confidence; `low` is not below 0. */
struct interval estimate_mean(const double *values, size_t count);
struct interval estimate_scaled(struct interval interval, double factor);

#define ESTIMATE_BINS 12

/* Counts lengths in bins that double: [0,64), [64,128), …; the last one is open. */
void estimate_histogram(const uint32_t *lengths, size_t count, uint64_t ret_bins[ESTIMATE_BINS]);
uint32_t estimate_bin_start(size_t bin);

/* `length` plus 500 tokens, rounded up to a multiple of 128. */
uint32_t estimate_roomy(uint32_t length);
