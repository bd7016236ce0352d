/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/plot.h"

#include <math.h>

#define WIDTH 460.0
#define HEIGHT 260.0
#define LEFT 62.0
#define RIGHT 14.0
#define TOP 34.0
#define BOTTOM 46.0
#define TICKS 4

void plot_write_text(struct buf *out, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '<': buf_add_text(out, "&lt;"); break;
        case '>': buf_add_text(out, "&gt;"); break;
        case '&': buf_add_text(out, "&amp;"); break;
        case '"': buf_add_text(out, "&quot;"); break;
        case '\'': buf_add_text(out, "&#39;"); break;
        default: buf_add_byte(out, *text);
        }
    }
}

/* The least of 1, 2, 2.5 and 5 times a power of ten that TICKS steps of reach `most`. */
static double step_for(double most) {
    static const double steps[] = {1, 2, 2.5, 5, 10};
    double power = pow(10, floor(log10(most / TICKS)));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i] * power * TICKS >= most) return steps[i] * power;
    return 10 * power;
}

static double x_of(const struct plot *plot, size_t place) {
    double width = WIDTH - LEFT - RIGHT;
    return LEFT + width * ((double)place + 0.5) / (double)plot->place_count;
}

static double y_of(double value, double top) {
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top;
}

static double most_of(const struct plot *plot) {
    double most = 0;
    for (size_t i = 0; i < plot->line_count; i++)
        for (size_t k = 0; k < plot->place_count; k++)
            if (plot->lines[i].points[k].is_known) most = fmax(most, plot->lines[i].points[k].high);
    return most > 0 ? most : 1;
}

static void write_axes(struct buf *out, const struct plot *plot, double step) {
    for (int i = 0; i <= TICKS; i++) {
        double y = y_of(step * i, step * TICKS);
        buf_printf(out,
                   "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                   "<text class=\"tick\" text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">%.4g</text>\n",
                   LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, step * i);
    }
    for (size_t k = 0; k < plot->place_count; k++) {
        buf_printf(out, "<text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">",
                   x_of(plot, k), HEIGHT - BOTTOM + 16);
        plot_write_text(out, plot->places[k]);
        buf_add_text(out, "</text>\n");
    }
    buf_printf(out, "<text class=\"axis\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">",
               (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
    plot_write_text(out, plot->x_title);
    buf_printf(out, "</text>\n<text class=\"title\" x=\"%.1f\" y=\"18\">", LEFT);
    plot_write_text(out, plot->title);
    buf_add_text(out, "</text>\n");
}

static void write_line(struct buf *out, const struct plot *plot, size_t index, double top) {
    const struct plot_line *line = &plot->lines[index];
    bool is_begun = false;
    buf_printf(out, "<g class=\"s%zu\"><polyline points=\"", index);
    for (size_t k = 0; k < plot->place_count; k++) {
        const struct plot_point *point = &line->points[k];
        if (!point->is_known) continue;
        buf_printf(out, "%s%.1f,%.1f", is_begun ? " " : "", x_of(plot, k),
                   y_of(point->middle, top));
        is_begun = true;
    }
    buf_add_text(out, "\"/>\n");
    for (size_t k = 0; k < plot->place_count; k++) {
        const struct plot_point *point = &line->points[k];
        double x = x_of(plot, k);
        if (!point->is_known) continue;
        buf_printf(out,
                   "<line class=\"range\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                   "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>",
                   x, x, y_of(point->low, top), y_of(point->high, top), x,
                   y_of(point->middle, top));
        plot_write_text(out, line->name);
        buf_printf(out, ": %.4g (%.4g to %.4g)</title></circle>\n", point->middle, point->low,
                   point->high);
    }
    buf_add_text(out, "</g>\n");
}

void plot_write(struct buf *out, const struct plot *plot) {
    double step = step_for(most_of(plot));
    buf_printf(out, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    plot_write_text(out, plot->title);
    buf_add_text(out, "\">\n");
    write_axes(out, plot, step);
    for (size_t i = 0; i < plot->line_count; i++) write_line(out, plot, i, step * TICKS);
    buf_add_text(out, "</svg>\n");
}
