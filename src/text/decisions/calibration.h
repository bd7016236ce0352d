/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* calibration: how well the probabilities of one question agree with the true answers, and the
 * temperature at which they agree best.
 *
 * A case is one answered question whose true option is known. The log loss is the mean of
 * −ln p(true option). It is convex in 1/T, so that its least place is found by bisection. The
 * calibration error (ECE) sorts the cases by their largest probability into 15 equally wide bins,
 * and is the mean over all cases of |share of right first choices − mean largest probability| in
 * their bin. A temperature changes no first choice, so that the accuracy stays.
 *
 * Thread: any.
 * Memory: a set owns its numbers; calibration_release frees.
 * Invariant: all sums are in the order of the cases, so that equal sets give equal bits. */

#include <stddef.h>
#include <stdint.h>

/* The range in which temperatures are sought. A set without a wrong first choice would have 0. */
#define CALIBRATION_LEAST 0.05
#define CALIBRATION_MOST 20.0
#define CALIBRATION_BINS 15

struct calibration_case {
    size_t logs_at; /* in the set's `logs` */
    uint32_t count; /* options */
    uint32_t truth; /* the true option */
};

/* Zero is a valid start: no cases. */
struct calibration_set {
    struct calibration_case *cases; /* (count) */
    size_t count, capacity;
    /* (log_count) Log probabilities of options, each case's up to a number of its own. */
    double *logs;
    size_t log_count, log_capacity;
};

struct calibration_figures {
    double log_loss; /* in nats */
    double error;    /* the calibration error, 0..1 */
    double accuracy; /* share of cases whose likeliest option is the true one */
};

void calibration_add(struct calibration_set *set, const double *logs, uint32_t count,
                     uint32_t truth);
void calibration_release(struct calibration_set *set);

/* The figures of a set, which is not empty, at a temperature. */
struct calibration_figures calibration_measure(const struct calibration_set *set,
                                               double temperature);
/* The temperature with the least log loss, from CALIBRATION_LEAST to CALIBRATION_MOST. The set is
 * not empty. */
double calibration_fit(const struct calibration_set *set);
