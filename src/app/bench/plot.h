/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plot: a chart of lines as SVG inside a page: one line per server over the loads, with the range
 * of its rounds.
 *
 * Colours are classes, so that the page's style chooses them for light and dark. The places on the
 * x axis are equally wide, whatever the loads.
 *
 * Thread: any.
 * Memory: appends to the caller's buf. */

#include "base/buf.h"

#define PLOT_LINES_MAX 8

struct plot_point {
    double middle, low, high;
    bool is_known;
};

struct plot_line {
    const char *name;
    const struct plot_point *points; /* (place_count) */
};

struct plot {
    const char *title; /* with the unit */
    const char *x_title;
    const char *const *places; /* (place_count) labels of the x axis */
    size_t place_count;
    struct plot_line lines[PLOT_LINES_MAX];
    size_t line_count;
};

void plot_write(struct buf *out, const struct plot *plot);
/* Appends text for HTML, with its five special characters escaped. */
void plot_write_text(struct buf *out, const char *text);
