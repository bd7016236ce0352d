/* SPDX-License-Identifier: Apache-2.0 */
#include "evaluate/tuning_page.h"

#include "base/str.h"
#include "bench/plot.h"
#include "costs/costs.h"
#include "json/json.h"

#include <inttypes.h>
#include <math.h>

/* Money and energy of a saving, as the page names them. */
static const struct {
    const char *name, *unit;
} costs[] = {{"watt_hours", "Wh"}, {"electricity", "electricity"}, {"rented_gpu", "rented"}};

static double number_at(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void add_text(struct buf *out, const json_t *object, const char *name) {
    plot_write_text(out, json_string_value(json_object_get(object, name)));
}

static void add_share(struct buf *out, double share) {
    if (isfinite(share))
        buf_printf(out, "<td>%.1f</td>", 100 * share);
    else
        buf_add_text(out, "<td>-</td>");
}

/* "1.2 h (0.9 h to 1.4 h)", or what it costs. */
static void add_saving(struct buf *out, const json_t *setting) {
    const json_t *list = json_object_get(setting, "saving");
    const json_t *last = json_array_get(list, EVALUATION_JOBS - 2);
    double seconds = number_at(last, "seconds");
    buf_add_text(out, "<td>");
    if (isfinite(seconds)) {
        double low = fabs(number_at(last, "seconds_low"));
        double high = fabs(number_at(last, "seconds_high"));
        if (seconds < 0) buf_add_text(out, "costs ");
        cost_seconds_write(out, fabs(seconds));
        buf_add_text(out, "<br><small>");
        cost_seconds_write(out, fmin(low, high));
        buf_add_text(out, " to ");
        cost_seconds_write(out, fmax(low, high));
        buf_add_text(out, "</small>");
    } else {
        buf_add_text(out, "-");
    }
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        double cost = number_at(last, costs[i].name);
        if (isfinite(cost)) buf_printf(out, "<br><small>%.4g %s</small>", cost, costs[i].unit);
    }
    buf_add_text(out, "</td>");
}

static void write_setting(struct buf *out, const json_t *setting) {
    const json_t *ratio = json_object_get(setting, "ratio");
    buf_add_text(out, "<tr><td>");
    add_text(out, setting, "options");
    if (json_integer_value(json_object_get(setting, "rounds")) == 0) {
        buf_add_text(out, "</td><td class=\"answer\" colspan=\"6\">not measured: ");
        add_text(out, setting, "why_not");
        buf_add_text(out, "</td></tr>\n");
        return;
    }
    buf_printf(out, "</td><td>%.4g</td><td>%.3f <small>%.3f to %.3f</small></td><td>",
               number_at(setting, "requests_per_second"), number_at(ratio, "mean"),
               number_at(ratio, "low"), number_at(ratio, "high"));
    add_text(out, setting, "verdict");
    buf_add_text(out, "</td>");
    add_share(out, number_at(setting, "equal_share"));
    add_saving(out, setting);
    buf_add_text(out, "<td class=\"answer\">");
    add_text(out, json_object_get(setting, "effort"), "text");
    buf_add_text(out, "</td></tr>\n");
}

void tuning_page_write(struct buf *out, const struct evaluation *evaluation) {
    json_t *tuning = tuning_json(evaluation), *setting;
    const json_t *today = json_object_get(tuning, "today");
    size_t index;
    if (!tuning) return;
    uint64_t lines = (uint64_t)json_integer_value(json_object_get(tuning, "lines"));
    buf_add_text(out, "<h2>Settings of ");
    add_text(out, tuning, "model");
    buf_printf(out,
               "</h2>\n<p>One option changed at a time, over %" PRIu64 " of these %s, next to runs "
               "of today's options: %.4g req/s, which differ by %.1f %% among themselves. A saving "
               "is of %" PRIu64 " requests, and only of a setting that is told apart from today's "
               "(faster, slower). Two that help alone need not help together.</p>\n"
               "<div class=\"wide\"><table><tr><th>setting</th><th>req/s</th>"
               "<th>impact: ratio <small>rounds</small></th><th></th><th>equal answers %%</th>"
               "<th>saving</th><th>effort</th></tr>\n",
               lines, plural(lines, "request", "requests"), number_at(today, "requests_per_second"),
               100 * number_at(today, "noise"), evaluation_jobs[EVALUATION_JOBS - 2]);
    json_array_foreach(json_object_get(tuning, "settings"), index, setting)
        write_setting(out, setting);
    buf_add_text(out, "</table></div>\n");
    json_decref(tuning);
}
