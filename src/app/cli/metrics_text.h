/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* metrics_text: reads the text of /metrics (Prometheus 0.0.4), sample by sample.
 *
 * A sample is a name, labels in braces and a value. Comments, empty lines and lines that are no
 * sample are skipped, since another version of quern may write more.
 *
 * Thread: any.
 * Memory: samples borrow the text. */

#include "base/str.h"

struct metric_sample {
    struct str name;
    struct str labels; /* between the braces; empty: none */
    double value;
};

/* Takes the next sample off the text. False at the end. */
bool metrics_text_next(struct str *text, struct metric_sample *ret_sample);
/* The value of a label as it is written, escapes included; empty if the sample has no such label.
 */
struct str metrics_text_label(const struct metric_sample *sample, const char *name);
