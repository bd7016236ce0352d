/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* metrics_text: the text format of Prometheus (0.0.4): heads, values, labels, histograms.
 *
 * Knows no metric.
 *
 * Thread: any; pure.
 * Memory: appends to the caller's buffer. */

#include "base/buf.h"
#include "base/histogram.h"

void metrics_head(struct buf *buf, const char *name, const char *type, const char *help);
/* Appends a metric without labels, with its head. */
void metrics_one(struct buf *buf, const char *name, const char *type, double value,
                 const char *help);
/* Appends a name as the value of a label: escaped, and without line ends. */
void metrics_label(struct buf *buf, const char *name);
/* Appends the series of one histogram, without a head. `labels` is `name="value",…`, escaped, or
 * empty. */
void metrics_histogram(struct buf *buf, const char *name, const char *labels,
                       const struct histogram_bounds *bounds, const struct histogram *histogram);
