/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* figures: mean, spread and percentiles of measured times.
 *
 * A percentile between two values is interpolated on the line between them, as numpy does by
 * default, so that figures compare with those of vLLM's benchmark.
 *
 * Thread: any.
 * Memory: the caller's; figures_of sorts the caller's array. */

#include <stddef.h>

struct figures {
    size_t count;                   /* 0: nothing was measured, and all figures are 0 */
    double mean, median, deviation; /* the standard deviation divides by n, as numpy's does */
    double p50, p90, p95, p99;
    double min, max;
};

/* Sorts the values and measures them. */
struct figures figures_of(double *values, size_t count);
/* The percentile (0..100) of sorted values; 0 without values. */
double figures_percentile(const double *sorted, size_t count, double percent);
