/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/tune.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENTS_MAX 180
#define OPTION_BYTES 80
#define ROUNDS_FOR_A_VERDICT 3

/* One call of tune_run. */
struct tuning {
    const struct tune_options *options;
    struct tune_baseline *baseline;
    struct trial first; /* the first run of today's options, whose answers count */
    double last_rate;   /* rate in the latest run of today's options */
    int64_t started_ns;
};

static void say(const struct tuning *tuning, const char *what) {
    if (tuning->options->say) tuning->options->say(tuning->options->context, what);
}

static bool has_time(const struct tuning *tuning) {
    double seconds = (double)(clock_monotonic_ns() - tuning->started_ns) / 1e9;
    return seconds < tuning->options->seconds;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, size_t count) {
    double sorted[TUNE_ROUNDS_MAX * (TUNE_SETTINGS_MAX + 1)];
    if (count == 0) return NAN;
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, compare);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* The mean of `runs` runs, after one more. */
static double mean_with(double mean, size_t runs, double more) {
    return runs <= 1 ? more : mean + (more - mean) / (double)runs;
}

static enum err run_baseline(struct tuning *tuning, struct error *error) {
    struct tune_baseline *baseline = tuning->baseline;
    struct trial trial;
    say(tuning, "today's options");
    enum err err = trial_run(&tuning->options->place, tuning->options->base, &trial, error);
    if (err != OK) return err;
    tuning->last_rate = trial.requests_per_s;
    baseline->rates[baseline->runs++] = trial.requests_per_s;
    baseline->joules_per_request =
        mean_with(baseline->joules_per_request, baseline->runs, trial.joules_per_request);
    baseline->requests = trial.requests;
    baseline->failed = trial.failed;
    if (baseline->runs == 2) baseline->equal_share = trial_equal_share(&tuning->first, &trial);
    if (baseline->runs > 1) {
        trial_release(&trial);
        return OK;
    }
    tuning->first = trial;
    return OK;
}

static void take(struct tuning *tuning, struct tune_setting *setting, const struct trial *trial,
                 double rate_before) {
    double today = (rate_before + tuning->last_rate) / 2;
    setting->rates[setting->rounds] = trial->requests_per_s;
    setting->ratios[setting->rounds++] = trial->requests_per_s / today;
    setting->joules_per_request =
        mean_with(setting->joules_per_request, setting->rounds, trial->joules_per_request);
    setting->equal_share = trial_equal_share(&tuning->first, trial);
    setting->failed = trial->failed;
}

/* Runs the setting, and today's options after it. A setting that is refused is not tried again. */
static enum err run_setting(struct tuning *tuning, struct tune_setting *setting,
                            struct error *error) {
    const char *arguments[ARGUMENTS_MAX] = {NULL};
    char name[OPTION_BYTES], what[2 * OPTION_BYTES];
    size_t count = 0;
    struct trial trial;
    for (; tuning->options->base[count] && count + 3 < ARGUMENTS_MAX; count++)
        arguments[count] = tuning->options->base[count];
    snprintf(name, sizeof name, "--%s", setting->knob);
    snprintf(what, sizeof what, "%s %.60s", name, setting->value);
    arguments[count++] = name;
    arguments[count] = setting->value;
    say(tuning, what);
    double rate_before = tuning->last_rate;
    enum err err = trial_run(&tuning->options->place, arguments, &trial, error);
    if (err == ERR_INVALID) {
        snprintf(setting->why, sizeof setting->why, "%.299s", error->text);
        return OK;
    }
    if (err == OK) err = run_baseline(tuning, error);
    if (err == OK) take(tuning, setting, &trial, rate_before);
    trial_release(&trial);
    return err;
}

static enum err run_rounds(struct tuning *tuning, struct tune_setting *settings, size_t count,
                           struct error *error) {
    enum err err = run_baseline(tuning, error);
    for (size_t round = 0; round < tuning->options->rounds && err == OK; round++)
        for (size_t i = 0; i < count && err == OK && has_time(tuning); i++)
            if (!settings[i].why_not && !*settings[i].why)
                err = run_setting(tuning, &settings[i], error);
    return err;
}

/* How much two runs of the same options differ. */
static double noise_of(const struct tune_baseline *baseline) {
    double squares = 0;
    for (size_t i = 1; i < baseline->runs; i++) {
        double ratio = log(baseline->rates[i] / baseline->rates[i - 1]);
        squares += ratio * ratio;
    }
    return baseline->runs > 1 ? sqrt(squares / (double)(baseline->runs - 1)) : NAN;
}

enum err tune_run(const struct tune_options *options, struct tune_setting *settings, size_t count,
                  struct tune_baseline *ret_baseline, struct error *error) {
    struct tuning tuning = {
        .options = options, .baseline = ret_baseline, .started_ns = clock_monotonic_ns()};
    *ret_baseline = (struct tune_baseline){.joules_per_request = NAN, .equal_share = NAN};
    for (size_t i = 0; i < count; i++) {
        settings[i].rounds = 0;
        settings[i].joules_per_request = settings[i].equal_share = NAN;
        *settings[i].why = '\0';
        if (settings[i].why_not)
            snprintf(settings[i].why, sizeof settings[i].why, "%s", settings[i].why_not);
    }
    enum err err = run_rounds(&tuning, settings, count, error);
    ret_baseline->noise = noise_of(ret_baseline);
    ret_baseline->requests_per_s = median(ret_baseline->rates, ret_baseline->runs);
    for (size_t i = 0; i < count; i++) {
        settings[i].requests_per_s = median(settings[i].rates, settings[i].rounds);
        if (settings[i].rounds == 0 && !*settings[i].why)
            snprintf(settings[i].why, sizeof settings[i].why, "no time was left (--seconds)");
    }
    trial_release(&tuning.first);
    return err;
}

void tune_ratio(const struct tune_setting *setting, double *ret_low, double *ret_mean,
                double *ret_high) {
    double logs = 0;
    *ret_low = *ret_high = setting->ratios[0];
    for (size_t i = 0; i < setting->rounds; i++) {
        logs += log(setting->ratios[i]);
        *ret_low = fmin(*ret_low, setting->ratios[i]);
        *ret_high = fmax(*ret_high, setting->ratios[i]);
    }
    *ret_mean = exp(logs / (double)setting->rounds);
}

enum tune_verdict tune_verdict(const struct tune_baseline *baseline,
                               const struct tune_setting *setting) {
    double low, mean, high;
    tune_ratio(setting, &low, &mean, &high);
    if (setting->rounds < ROUNDS_FOR_A_VERDICT) return TUNE_FEW_ROUNDS;
    if (low > 1 && log(mean) > baseline->noise) return TUNE_FASTER;
    return high < 1 && -log(mean) > baseline->noise ? TUNE_SLOWER : TUNE_NOISE;
}
