/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* time_fit: the time of a file from the times of small samples of it.
 *
 * A run takes some time per row that it computes (a token of a prompt or of an answer), and some
 * per step, which reads all weights whatever number of rows it has:
 *
 *     seconds = per_row * rows + per_step * steps
 *
 * Many sequences share a step, so a whole file needs fewer steps per row than a small sample. Both
 * factors are fitted to samples of several sizes, by least squares, and neither is below 0. A
 * sample counts by its seconds, since other work on the machine evens out over a longer one.
 *
 * The interval is that of one more run: it has the scatter of the samples around the fit as well as
 * the uncertainty of both factors. It is one of ratios, as times have: on a machine that does other
 * work as well, a run takes twice the time as easily as half.
 *
 * Thread: any; pure.
 * Memory: plain structs. */

#include "preflight/estimate.h"

#define TIME_FIT_GROUPS_MAX 16
/* Samples of a quiet machine agree better with each other than with a whole file, which runs at
 * other clocks and with more sequences. */
#define TIME_FIT_SCATTER_MIN 0.05

/* The work and time of one sample. */
struct time_work {
    double rows, steps;
    double seconds; /* not read by time_fit_predict */
};

struct time_fit {
    double per_row, per_step;
    double scatter;       /* relative standard deviation of a run, at least TIME_FIT_SCATTER_MIN */
    double variance;      /* variance of the samples' errors, for one second of a sample */
    double inverse[2][2]; /* inverse of the normal matrix; a factor that is fixed at 0 has zeros */
    size_t freedom;       /* degrees; 0: no interval */
};

/* `count` from 1 to TIME_FIT_GROUPS_MAX; each has rows and seconds above 0. */
struct time_fit time_fit_of(const struct time_work *groups, size_t count);
/* The interval in which one run of this work lies in 95 of 100 cases. */
struct interval time_fit_predict(const struct time_fit *fit, const struct time_work *work);
