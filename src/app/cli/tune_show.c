/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tune_show.h"

#include "base/str.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const verdicts[] = {[TUNE_FASTER] = "faster",
                                       [TUNE_SLOWER] = "slower",
                                       [TUNE_NOISE] = "within the noise",
                                       [TUNE_FEW_ROUNDS] = "too few rounds"};

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

static void print_setting(const struct tune_figures *shown, const struct tune_setting *setting) {
    double low, mean, high;
    char name[80], spread[48];
    tune_ratio(setting, &low, &mean, &high);
    snprintf(name, sizeof name, "--%s %s", setting->knob, setting->value);
    snprintf(spread, sizeof spread, "%.2f (%.2f to %.2f)", mean, low, high);
    printf("%-38s %9.3f  %-21s", name, setting->requests_per_s, spread);
    print_energy(setting->joules_per_request);
    print_share(setting->equal_share);
    printf("  %s", verdicts[tune_verdict(shown->baseline, setting)]);
    if (setting->failed > 0)
        printf("; %" PRIu64 " %s failed", setting->failed,
               plural(setting->failed, "request", "requests"));
    printf("\n");
}

static void print_rest(const struct tune_figures *shown) {
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
static void print_advice(const struct tune_figures *shown) {
    bool has_any = false;
    for (size_t i = 0; i < shown->count; i++) {
        const struct tune_setting *setting = &shown->settings[i];
        if (setting->rounds == 0 || tune_verdict(shown->baseline, setting) != TUNE_FASTER) continue;
        printf("%s --%s %s", has_any ? " or" : "\nFaster, one at a time:", setting->knob,
               setting->value);
        has_any = true;
    }
    if (has_any) printf("\n");
}

void tune_show_table(const struct tune_figures *shown) {
    const struct tune_baseline *is = shown->baseline;
    printf("%" PRIu32 " %s of %s, in %.0f s; req/s is the median, the ratio is to today's "
           "options\n\n",
           shown->lines, plural(shown->lines, "request", "requests"), shown->path,
           shown->baseline->seconds);
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
