/* SPDX-License-Identifier: Apache-2.0 */
#include "base/histogram.h"

void histogram_add(struct histogram *histogram, const struct histogram_bounds *bounds,
                   double value) {
    size_t range = 0;
    while (range < bounds->count && value > bounds->at[range]) range++;
    histogram->counts[range]++;
    histogram->sum += value;
}

void histogram_merge(struct histogram *histogram, const struct histogram *more) {
    for (size_t i = 0; i <= HISTOGRAM_BOUNDS_MAX; i++) histogram->counts[i] += more->counts[i];
    histogram->sum += more->sum;
}
