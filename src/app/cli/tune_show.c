/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tune_show.h"

#include "base/str.h"
#include "json/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS_FOR_A_VERDICT 3

enum verdict { FASTER, SLOWER, NOT_TOLD_APART, FEW_ROUNDS };
static const char *const verdicts[] = {"faster", "slower", "within the noise", "too few rounds"};
static const char *const verdict_names[] = {"faster", "slower", "noise", "few_rounds"};

static enum verdict verdict_of(const struct tune_shown *shown, const struct tune_setting *setting) {
    double low, mean, high;
    tune_ratio(setting, &low, &mean, &high);
    if (setting->rounds < ROUNDS_FOR_A_VERDICT) return FEW_ROUNDS;
    if (low > 1 && log(mean) > shown->baseline->noise) return FASTER;
    return high < 1 && -log(mean) > shown->baseline->noise ? SLOWER : NOT_TOLD_APART;
}

/* --- table --- */

static void print_share(double share) {
    if (isnan(share))
        printf("%8s", "-");
    else
        printf("%6.1f %%", 100 * share);
}

static void print_energy(double joules) {
    if (isnan(joules))
        printf("%11s", "-");
    else
        printf("%11.4g", joules);
}

static void print_setting(const struct tune_shown *shown, const struct tune_setting *setting) {
    double low, mean, high;
    char name[80], spread[48];
    tune_ratio(setting, &low, &mean, &high);
    snprintf(name, sizeof name, "--%s %s", setting->knob, setting->value);
    snprintf(spread, sizeof spread, "%.2f (%.2f to %.2f)", mean, low, high);
    printf("%-38s %9.3f  %-21s", name, setting->requests_per_s, spread);
    print_energy(setting->joules_per_request);
    print_share(setting->equal_share);
    printf("  %s", verdicts[verdict_of(shown, setting)]);
    if (setting->failed > 0)
        printf("; %" PRIu64 " %s failed", setting->failed,
               plural(setting->failed, "request", "requests"));
    printf("\n");
}

static void print_rest(const struct tune_shown *shown) {
    bool has_any = false;
    for (size_t i = 0; i < shown->count; i++) {
        const struct tune_setting *setting = &shown->settings[i];
        if (setting->rounds > 0) continue;
        if (!has_any) printf("\nNot measured:\n");
        has_any = true;
        printf("  --%s %s: %s\n", setting->knob, setting->value, setting->why);
    }
}

/* The settings that were faster each time, as options; they were measured one at a time. */
static void print_advice(const struct tune_shown *shown) {
    bool has_any = false;
    for (size_t i = 0; i < shown->count; i++) {
        const struct tune_setting *setting = &shown->settings[i];
        if (setting->rounds == 0 || verdict_of(shown, setting) != FASTER) continue;
        printf("%s --%s %s", has_any ? " or" : "\nFaster, one at a time:", setting->knob,
               setting->value);
        has_any = true;
    }
    if (has_any) printf("\n");
}

void tune_show_table(const struct tune_shown *shown) {
    const struct tune_baseline *is = shown->baseline;
    printf("%" PRIu32 " %s of %s, in %.0f s; req/s is the median, the ratio is to today's "
           "options\n\n",
           shown->lines, plural(shown->lines, "request", "requests"), shown->path, shown->seconds);
    printf("%-38s %9s  %-21s%11s%8s\n", "setting", "req/s", "ratio (low to high)", "J/request",
           "equal");
    char noise[48] = "1";
    if (!isnan(is->noise))
        snprintf(noise, sizeof noise, "1 (%.2f to %.2f)", exp(-is->noise), exp(is->noise));
    printf("%-38s %9.3f  %-21s", "today's options", is->requests_per_s, noise);
    print_energy(is->joules_per_request);
    print_share(is->equal_share);
    if (is->failed > 0)
        printf("  %" PRIu64 " %s failed", is->failed, plural(is->failed, "request", "requests"));
    printf("\n");
    for (size_t i = 0; i < shown->count; i++)
        if (shown->settings[i].rounds > 0) print_setting(shown, &shown->settings[i]);
    print_rest(shown);
    print_advice(shown);
}

/* --- JSON --- */

static void add_number(struct buf *buf, const char *name, double value) {
    if (isnan(value))
        buf_printf(buf, ",\"%s\":null", name);
    else
        buf_printf(buf, ",\"%s\":%.6g", name, value);
}

static void add_setting(struct buf *buf, const struct tune_shown *shown,
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
               verdict_names[verdict_of(shown, setting)]);
}

void tune_show_json(const struct tune_shown *shown) {
    const struct tune_baseline *is = shown->baseline;
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_printf(&text,
               "{\"object\":\"tune\",\"lines\":%" PRIu32
               ",\"seconds\":%.3f,\"today\":{\"runs\":%zu",
               shown->lines, shown->seconds, is->runs);
    add_number(&text, "requests_per_second", is->requests_per_s);
    add_number(&text, "noise", isnan(is->noise) ? NAN : exp(is->noise) - 1);
    add_number(&text, "joules_per_request", is->joules_per_request);
    add_number(&text, "equal_share", is->equal_share);
    buf_printf(&text, ",\"failed\":%" PRIu64 "},\"settings\":[", is->failed);
    for (size_t i = 0; i < shown->count; i++) {
        if (i > 0) buf_add_byte(&text, ',');
        add_setting(&text, shown, &shown->settings[i]);
    }
    buf_add_text(&text, "]}");
    puts(text.at);
    buf_release(&text);
}
