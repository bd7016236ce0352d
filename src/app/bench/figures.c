/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/figures.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *left, const void *right) {
    double x = *(const double *)left, y = *(const double *)right;
    return (x > y) - (x < y);
}

double figures_percentile(const double *sorted, size_t count, double percent) {
    if (count == 0) return 0;
    double place = percent / 100 * (double)(count - 1), below = floor(place);
    size_t at = (size_t)below;
    if (at + 1 >= count) return sorted[count - 1];
    return sorted[at] + (place - below) * (sorted[at + 1] - sorted[at]);
}

struct figures figures_of(double *values, size_t count) {
    struct figures is = {.count = count};
    double squares = 0;
    if (count == 0) return is;
    qsort(values, count, sizeof *values, by_value);
    for (size_t i = 0; i < count; i++) is.mean += values[i] / (double)count;
    for (size_t i = 0; i < count; i++) squares += (values[i] - is.mean) * (values[i] - is.mean);
    is.deviation = sqrt(squares / (double)count);
    is.p50 = is.median = figures_percentile(values, count, 50);
    is.p90 = figures_percentile(values, count, 90);
    is.p95 = figures_percentile(values, count, 95);
    is.p99 = figures_percentile(values, count, 99);
    is.min = values[0];
    is.max = values[count - 1];
    return is;
}
