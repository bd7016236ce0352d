/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/tune_json.h"

#include "base/str.h"
#include "json/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const char *const verdict_names[] = {[TUNE_FASTER] = "faster",
                                            [TUNE_SLOWER] = "slower",
                                            [TUNE_NOISE] = "noise",
                                            [TUNE_FEW_ROUNDS] = "few_rounds"};

static void add_number(struct buf *buf, const char *name, double value) {
    if (isnan(value))
        buf_printf(buf, ",\"%s\":null", name);
    else
        buf_printf(buf, ",\"%s\":%.6g", name, value);
}

static void add_setting(struct buf *buf, const struct tune_baseline *baseline,
                        const struct tune_setting *setting) {
    double low, mean, high;
    char options[96];
    snprintf(options, sizeof options, "--%s %s", setting->knob, setting->value);
    buf_add_text(buf, "{\"knob\":");
    json_write_string(buf, str_from(setting->knob));
    buf_add_text(buf, ",\"value\":");
    json_write_string(buf, str_from(setting->value));
    buf_add_text(buf, ",\"options\":");
    json_write_string(buf, str_from(options));
    buf_printf(buf, ",\"rounds\":%zu", setting->rounds);
    if (setting->rounds == 0) {
        buf_add_text(buf, ",\"why_not\":");
        json_write_string(buf, str_from(setting->why));
        buf_add_byte(buf, '}');
        return;
    }
    tune_ratio(setting, &low, &mean, &high);
    add_number(buf, "requests_per_second", setting->requests_per_s);
    buf_printf(buf, ",\"ratio\":{\"low\":%.6g,\"mean\":%.6g,\"high\":%.6g}", low, mean, high);
    add_number(buf, "joules_per_request", setting->joules_per_request);
    add_number(buf, "equal_share", setting->equal_share);
    buf_printf(buf, ",\"failed\":%" PRIu64 ",\"verdict\":\"%s\",\"why_not\":null}", setting->failed,
               verdict_names[tune_verdict(baseline, setting)]);
}

void tune_json_write(struct buf *out, const struct tune_figures *figures) {
    const struct tune_baseline *is = figures->baseline;
    buf_printf(
        out, "{\"object\":\"tune\",\"lines\":%" PRIu32 ",\"seconds\":%.3f,\"today\":{\"runs\":%zu",
        figures->lines, is->seconds, is->runs);
    add_number(out, "requests_per_second", is->requests_per_s);
    add_number(out, "noise", isnan(is->noise) ? NAN : exp(is->noise) - 1);
    add_number(out, "joules_per_request", is->joules_per_request);
    add_number(out, "equal_share", is->equal_share);
    buf_printf(out, ",\"failed\":%" PRIu64 "},\"settings\":[", is->failed);
    for (size_t i = 0; i < figures->count; i++) {
        if (i > 0) buf_add_byte(out, ',');
        add_setting(out, is, &figures->settings[i]);
    }
    buf_add_text(out, "]}");
}
