/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tune: what each setting does to the owner's own requests, measured.
 *
 * A setting is today's options with one of them changed. Its runs alternate with runs of today's
 * options, and its ratio is that to the mean of the run before and the run after, so that other
 * work on the machine weighs on both. Rounds go on while time is left; a figure that was not
 * measured is not told.
 *
 * With a file of trials (trials.h) a call takes what earlier calls have measured, and goes on with
 * a run of today's options, since those before lie in another hour: a ratio and the noise compare
 * runs of one call alone. Time between two calls does not count.
 *
 * Thread: one.
 * Memory: the settings are the caller's; tune_release frees what trials left. */

#include "tune/trial.h"

#define TUNE_ROUNDS_MAX 9
#define TUNE_SETTINGS_MAX 32
#define TUNE_RUNS_MAX (TUNE_ROUNDS_MAX * (TUNE_SETTINGS_MAX + 1))

/* One setting, and what was measured of it. The caller sets the first three members. */
struct tune_setting {
    const char *knob;          /* the option's name, without dashes */
    const char *value;         /* to try */
    const char *why_not;       /* why it is not to be tried, a sentence; NULL: try it */
    char why[TRIAL_WHY_BYTES]; /* why there are no figures; empty: there are */
    double ratios[TUNE_ROUNDS_MAX];
    size_t rounds;
    double requests_per_s; /* the median of its runs */
    double rates[TUNE_ROUNDS_MAX];
    double joules_per_request; /* the mean of its runs; NAN: not known */
    double equal_share;        /* answers equal to those of today's options; NAN: not known */
    uint64_t failed;           /* requests of its last run */
};

struct tune_options {
    struct trial_place place;
    const char *const *base; /* today's options, ending in NULL */
    size_t rounds;           /* at most TUNE_ROUNDS_MAX */
    double seconds;          /* no round begins later */
    const char *kept;        /* the file of trials; NULL: none */
    const char *of;          /* all that its trials depend on but the settings */
    void *context;
    void (*say)(void *context, const char *what); /* what is running now; NULL allowed */
};

/* What was measured of today's options. */
struct tune_baseline {
    double rates[TUNE_RUNS_MAX]; /* the first `runs` are there */
    size_t runs;
    double seconds;        /* duration of all trials */
    double requests_per_s; /* the median */
    double noise;          /* root mean square of log ratios of neighbours; NAN: no neighbours */
    double joules_per_request; /* the mean; NAN: not known */
    double equal_share;        /* share of the answers of its first two runs; NAN: not known */
    uint64_t requests, failed;
};

/* Measures the settings. ERR_INVALID with the run's sentence if today's options cannot run the
 * sample; ERR_CANCELLED. */
enum err tune_run(const struct tune_options *options, struct tune_setting *settings, size_t count,
                  struct tune_baseline *ret_baseline, struct error *error) MUST_CHECK;

/* All that was measured, for a reader. */
struct tune_figures {
    const char *path; /* the owner's file */
    uint32_t lines;   /* lines in its sample */
    const struct tune_baseline *baseline;
    const struct tune_setting *settings; /* (count) */
    size_t count;
};

/* A setting is faster or slower if each of three or more rounds says so, and its mean ratio is
 * further from 1 than neighbouring runs of today's options differ by themselves. Else it is within
 * the noise. */
enum tune_verdict { TUNE_FASTER, TUNE_SLOWER, TUNE_NOISE, TUNE_FEW_ROUNDS };
/* The setting has one round or more. */
enum tune_verdict tune_verdict(const struct tune_baseline *baseline,
                               const struct tune_setting *setting);

/* The least, the geometric mean and the largest of the ratios; there is one or more. */
void tune_ratio(const struct tune_setting *setting, double *ret_low, double *ret_mean,
                double *ret_high);
