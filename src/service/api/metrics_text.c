/* SPDX-License-Identifier: Apache-2.0 */
#include "api/metrics_text.h"

#include <inttypes.h>

void metrics_head(struct buf *buf, const char *name, const char *type, const char *help) {
    buf_printf(buf, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metrics_one(struct buf *buf, const char *name, const char *type, double value,
                 const char *help) {
    metrics_head(buf, name, type, help);
    buf_printf(buf, "%s %.17g\n", name, value);
}

void metrics_label(struct buf *buf, const char *name) {
    for (; *name; name++) {
        if (*name == '\\' || *name == '"') buf_add_byte(buf, '\\');
        buf_add_byte(buf, *name == '\n' ? ' ' : *name);
    }
}

void metrics_histogram(struct buf *buf, const char *name, const char *labels,
                       const struct histogram_bounds *bounds, const struct histogram *histogram) {
    uint64_t below = 0;
    const char *comma = *labels ? "," : "";
    for (size_t i = 0; i < bounds->count; i++) {
        below += histogram->counts[i];
        buf_printf(buf, "%s_bucket{%s%sle=\"%g\"} %" PRIu64 "\n", name, labels, comma,
                   bounds->at[i], below);
    }
    below += histogram->counts[bounds->count];
    buf_printf(buf, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, labels, comma, below);
    const char *open = *labels ? "{" : "", *close = *labels ? "}" : "";
    buf_printf(buf, "%s_sum%s%s%s %.17g\n", name, open, labels, close, histogram->sum);
    buf_printf(buf, "%s_count%s%s%s %" PRIu64 "\n", name, open, labels, close, below);
}
