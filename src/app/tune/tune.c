/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/tune.h"

#include "base/clock.h"
#include "base/str.h"
#include "json/json.h"
#include "tune/trials.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENTS_MAX 180
#define OPTION_BYTES 80
#define ROUNDS_FOR_A_VERDICT 3

/* What is kept of a trial. */
struct outcome {
    double requests_per_s, joules_per_request; /* the second NAN: not known */
    double equal_share; /* with the answers of the first run of today's options; NAN: not known */
    uint64_t requests, failed;
};

/* One call of tune_run. */
struct tuning {
    const struct tune_options *options;
    struct tune_baseline *baseline;
    struct trials trials;
    struct trial first;        /* the first run of today's options, whose answers count */
    bool has_first, has_begun; /* begun: this call has run today's options */
    double last_rate;          /* rate in the latest run of today's options */
    double squares;            /* their log ratios, of neighbouring runs of today's options */
    size_t pairs;
    double earlier_seconds; /* all trials that were taken from the file */
    int64_t started_ns;     /* with has_begun */
};

static void say(const struct tuning *tuning, const char *what) {
    if (tuning->options->say) tuning->options->say(tuning->options->context, what);
}

static double seconds_of(const struct tuning *tuning) {
    int64_t ns = tuning->has_begun ? clock_monotonic_ns() - tuning->started_ns : 0;
    return tuning->earlier_seconds + (double)ns / 1e9;
}

static bool has_time(const struct tuning *tuning) {
    return seconds_of(tuning) < tuning->options->seconds;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, size_t count) {
    double sorted[TUNE_RUNS_MAX];
    if (count == 0) return NAN;
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, compare);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* The mean of `runs` runs, after one more. */
static double mean_with(double mean, size_t runs, double more) {
    return runs <= 1 ? more : mean + (more - mean) / (double)runs;
}

/* --- outcomes --- */

/* Takes the trial; the first one stays, for its answers. */
static struct outcome outcome_of(struct tuning *tuning, struct trial *trial) {
    struct outcome outcome = {.requests_per_s = trial->requests_per_s,
                              .joules_per_request = trial->joules_per_request,
                              .equal_share = NAN,
                              .requests = trial->requests,
                              .failed = trial->failed};
    if (tuning->has_first) {
        outcome.equal_share = trial_equal_share(&tuning->first, trial);
        trial_release(trial);
        return outcome;
    }
    trials_set_answers(&tuning->trials, trial);
    tuning->first = *trial;
    tuning->has_first = true;
    return outcome;
}

static json_t *number(double value) {
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *json_of(const struct outcome *outcome) {
    return json_pack("{s:o,s:o,s:o,s:I,s:I}", "requests_per_s", number(outcome->requests_per_s),
                     "joules_per_request", number(outcome->joules_per_request), "equal_share",
                     number(outcome->equal_share), "requests", (json_int_t)outcome->requests,
                     "failed", (json_int_t)outcome->failed);
}

static double number_of(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static struct outcome outcome_from(const json_t *object) {
    return (struct outcome){
        .requests_per_s = number_of(object, "requests_per_s"),
        .joules_per_request = number_of(object, "joules_per_request"),
        .equal_share = number_of(object, "equal_share"),
        .requests = (uint64_t)json_integer_value(json_object_get(object, "requests")),
        .failed = (uint64_t)json_integer_value(json_object_get(object, "failed"))};
}

/* Counts a run of today's options. One that begins a call has no neighbour before it. */
static void take_today(struct tuning *tuning, struct outcome outcome, bool begins) {
    struct tune_baseline *baseline = tuning->baseline;
    double ratio = log(outcome.requests_per_s / tuning->last_rate);
    if (!begins) {
        tuning->squares += ratio * ratio;
        tuning->pairs++;
    }
    tuning->last_rate = outcome.requests_per_s;
    if (baseline->runs < TUNE_RUNS_MAX) baseline->rates[baseline->runs++] = outcome.requests_per_s;
    baseline->joules_per_request =
        mean_with(baseline->joules_per_request, baseline->runs, outcome.joules_per_request);
    baseline->requests = outcome.requests;
    baseline->failed = outcome.failed;
    if (baseline->runs == 2) baseline->equal_share = outcome.equal_share;
}

/* Counts a run of a setting, and that of today's options after it. */
static void take_setting(struct tuning *tuning, struct tune_setting *setting,
                         struct outcome outcome, struct outcome after) {
    double today = (tuning->last_rate + after.requests_per_s) / 2;
    setting->rates[setting->rounds] = outcome.requests_per_s;
    setting->ratios[setting->rounds++] = outcome.requests_per_s / today;
    setting->joules_per_request =
        mean_with(setting->joules_per_request, setting->rounds, outcome.joules_per_request);
    setting->equal_share = outcome.equal_share;
    setting->failed = outcome.failed;
    take_today(tuning, after, false);
}

/* --- what earlier calls have measured ---
 *
 * A record is {"seconds"} and the members of its kind:
 *   "today"                     the first run of a call
 *   "setting", "why"            a setting that was refused before its run began
 *   "setting", "why", "today"   a setting whose run failed, and today's options after it
 *   "setting", "run", "today"   a run of a setting, and of today's options after it */

static enum err add_record(struct tuning *tuning, json_t *record, struct error *error) {
    json_object_set_new(record, "seconds", json_real(seconds_of(tuning)));
    return trials_add(&tuning->trials, record, error);
}

static void take_record(struct tuning *tuning, const json_t *record) {
    double seconds = number_of(record, "seconds");
    if (seconds > tuning->earlier_seconds) tuning->earlier_seconds = seconds;
    trials_take(&tuning->trials);
}

static void take_beginnings(struct tuning *tuning) {
    const json_t *record;
    while (tuning->has_first && !tuning->has_begun && (record = trials_next(&tuning->trials)) &&
           !json_object_get(record, "setting")) {
        take_today(tuning, outcome_from(json_object_get(record, "today")), true);
        take_record(tuning, record);
    }
}

/* False if no earlier call has run the setting in this round. */
static bool take_kept(struct tuning *tuning, struct tune_setting *setting, const char *name) {
    take_beginnings(tuning);
    const json_t *record = trials_next(&tuning->trials);
    if (!tuning->has_first || tuning->has_begun || !record ||
        !str_is(json_member_str(record, "setting"), name))
        return false;
    struct str why = json_member_str(record, "why");
    if (why.at && json_object_get(record, "today"))
        take_today(tuning, outcome_from(json_object_get(record, "today")), false);
    if (why.at)
        snprintf(setting->why, sizeof setting->why, "%.*s", STR_ARGS(why));
    else
        take_setting(tuning, setting, outcome_from(json_object_get(record, "run")),
                     outcome_from(json_object_get(record, "today")));
    take_record(tuning, record);
    return true;
}

/* --- trials --- */

static enum err run_today(struct tuning *tuning, struct outcome *ret_outcome, struct error *error) {
    struct trial trial;
    say(tuning, "today's options");
    enum err err = trial_run(&tuning->options->place, tuning->options->base, &trial, error);
    if (err == OK) *ret_outcome = outcome_of(tuning, &trial);
    return err;
}

/* The first trial of a call, of today's options. */
static enum err begin(struct tuning *tuning, struct error *error) {
    struct outcome outcome;
    if (tuning->has_begun) return OK;
    tuning->started_ns = clock_monotonic_ns();
    tuning->has_begun = true;
    enum err err = run_today(tuning, &outcome, error);
    if (err != OK) return err;
    take_today(tuning, outcome, true);
    return add_record(tuning, json_pack("{s:o}", "today", json_of(&outcome)), error);
}

/* Notes why the setting has no figures, as for lack of memory; it is not tried again. A run that
 * failed on its way may have failed with any options: the model has gone, or another process has
 * the memory. So today's options run after it, and their error ends the tuning. */
static enum err note_failure(struct tuning *tuning, struct tune_setting *setting, const char *what,
                             const char *why, bool is_refused, struct error *error) {
    struct outcome after;
    json_t *record;
    enum err err = is_refused ? OK : run_today(tuning, &after, error);
    if (err != OK) return err;
    snprintf(setting->why, sizeof setting->why, "%.299s", why);
    record = json_pack("{s:s,s:s}", "setting", what, "why", setting->why);
    if (!is_refused) {
        take_today(tuning, after, false);
        json_object_set_new(record, "today", json_of(&after));
    }
    return add_record(tuning, record, error);
}

/* Runs the setting, and today's options after it. Only ERR_INVALID may be the setting's own fault:
 * a full disk, a file that is gone and their like would end any run. */
static enum err run_setting(struct tuning *tuning, struct tune_setting *setting,
                            struct error *error) {
    const char *arguments[ARGUMENTS_MAX] = {NULL};
    char name[OPTION_BYTES], what[2 * OPTION_BYTES];
    size_t count = 0;
    struct trial trial;
    struct outcome outcome, after;
    for (; tuning->options->base[count] && count + 3 < ARGUMENTS_MAX; count++)
        arguments[count] = tuning->options->base[count];
    snprintf(name, sizeof name, "--%s", setting->knob);
    snprintf(what, sizeof what, "%s %.60s", name, setting->value);
    arguments[count++] = name;
    arguments[count] = setting->value;
    if (take_kept(tuning, setting, what)) return OK;
    enum err err = begin(tuning, error);
    if (err != OK) return err;
    say(tuning, what);
    err = trial_run(&tuning->options->place, arguments, &trial, error);
    if (err == ERR_INVALID) {
        struct error why = *error;
        return note_failure(tuning, setting, what, why.text, trial.is_refused, error);
    }
    if (err != OK) return err;
    outcome = outcome_of(tuning, &trial);
    err = run_today(tuning, &after, error);
    if (err != OK) return err;
    take_setting(tuning, setting, outcome, after);
    return add_record(tuning,
                      json_pack("{s:s,s:o,s:o}", "setting", what, "run", json_of(&outcome), "today",
                                json_of(&after)),
                      error);
}

static enum err run_rounds(struct tuning *tuning, struct tune_setting *settings, size_t count,
                           struct error *error) {
    take_beginnings(tuning);
    enum err err = tuning->baseline->runs == 0 ? begin(tuning, error) : OK;
    for (size_t round = 0; round < tuning->options->rounds && err == OK; round++)
        for (size_t i = 0; i < count && err == OK && has_time(tuning); i++)
            if (!settings[i].why_not && !*settings[i].why)
                err = run_setting(tuning, &settings[i], error);
    return err;
}

enum err tune_run(const struct tune_options *options, struct tune_setting *settings, size_t count,
                  struct tune_baseline *ret_baseline, struct error *error) {
    struct tuning tuning = {.options = options, .baseline = ret_baseline};
    if (options->kept) trials_open(&tuning.trials, options->kept, options->of);
    tuning.has_first =
        trials_next(&tuning.trials) && trials_get_answers(&tuning.trials, &tuning.first);
    *ret_baseline = (struct tune_baseline){.joules_per_request = NAN, .equal_share = NAN};
    for (size_t i = 0; i < count; i++) {
        settings[i].rounds = 0;
        settings[i].joules_per_request = settings[i].equal_share = NAN;
        *settings[i].why = '\0';
        if (settings[i].why_not)
            snprintf(settings[i].why, sizeof settings[i].why, "%s", settings[i].why_not);
    }
    enum err err = run_rounds(&tuning, settings, count, error);
    ret_baseline->noise =
        tuning.pairs > 0 ? sqrt(tuning.squares / (double)tuning.pairs) : (double)NAN;
    ret_baseline->seconds = seconds_of(&tuning);
    ret_baseline->requests_per_s = median(ret_baseline->rates, ret_baseline->runs);
    for (size_t i = 0; i < count; i++) {
        settings[i].requests_per_s = median(settings[i].rates, settings[i].rounds);
        if (settings[i].rounds == 0 && !*settings[i].why)
            snprintf(settings[i].why, sizeof settings[i].why, "no time was left (--seconds)");
    }
    trial_release(&tuning.first);
    trials_close(&tuning.trials);
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
