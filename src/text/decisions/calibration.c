/* SPDX-License-Identifier: Apache-2.0 */
#include "decisions/calibration.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define HALVINGS 60 /* halve the range of ln T, 6 wide, to far below the last digit of a double */

void calibration_add(struct calibration_set *set, const double *logs, uint32_t count,
                     uint32_t truth) {
    assert(count >= 1 && truth < count);
    set->cases = vec_grow(set->cases, set->count, &set->capacity, sizeof *set->cases);
    set->cases[set->count++] = (struct calibration_case){set->log_count, count, truth};
    for (uint32_t i = 0; i < count; i++) {
        set->logs = vec_grow(set->logs, set->log_count, &set->log_capacity, sizeof *set->logs);
        set->logs[set->log_count++] = logs[i];
    }
}

void calibration_release(struct calibration_set *set) {
    free(set->cases);
    free(set->logs);
    *set = (struct calibration_set){.cases = NULL};
}

/* One case at a temperature. */
struct at_temperature {
    double log_true; /* log of the true option's probability */
    double largest;  /* probability */
    double mean_log; /* Σ p·log: the expected log probability at temperature 1 */
    uint32_t top;    /* the first of the largest */
};

static struct at_temperature look(const double *logs, const struct calibration_case *is,
                                  double temperature) {
    struct at_temperature at = {.top = 0};
    double sum = 0;
    for (uint32_t i = 1; i < is->count; i++)
        if (logs[i] > logs[at.top]) at.top = i;
    for (uint32_t i = 0; i < is->count; i++) {
        double weight = exp((logs[i] - logs[at.top]) / temperature);
        sum += weight;
        at.mean_log += weight * logs[i];
    }
    at.mean_log /= sum;
    at.largest = 1 / sum;
    at.log_true = (logs[is->truth] - logs[at.top]) / temperature - log(sum);
    return at;
}

struct calibration_figures calibration_measure(const struct calibration_set *set,
                                               double temperature) {
    struct {
        double right, largest;
    } bins[CALIBRATION_BINS] = {{0, 0}};
    struct calibration_figures figures = {.error = 0};
    double count = (double)set->count;
    assert(set->count > 0);
    for (size_t i = 0; i < set->count; i++) {
        const struct calibration_case *is = &set->cases[i];
        struct at_temperature at = look(set->logs + is->logs_at, is, temperature);
        size_t bin = (size_t)(at.largest * CALIBRATION_BINS);
        if (bin >= CALIBRATION_BINS) bin = CALIBRATION_BINS - 1; /* a probability of 1 */
        bins[bin].right += at.top == is->truth;
        bins[bin].largest += at.largest;
        figures.accuracy += at.top == is->truth;
        figures.log_loss -= at.log_true;
    }
    /* A bin's share of the cases, times the difference of its means, is the difference of its
     * sums. */
    for (size_t i = 0; i < CALIBRATION_BINS; i++)
        figures.error += fabs(bins[i].right - bins[i].largest) / count;
    figures.accuracy /= count;
    figures.log_loss /= count;
    return figures;
}

/* The derivative of the summed log loss by 1/T, which grows with 1/T. */
static double slope(const struct calibration_set *set, double temperature) {
    double sum = 0;
    for (size_t i = 0; i < set->count; i++) {
        const struct calibration_case *is = &set->cases[i];
        const double *logs = set->logs + is->logs_at;
        sum += look(logs, is, temperature).mean_log - logs[is->truth];
    }
    return sum;
}

double calibration_fit(const struct calibration_set *set) {
    double least = log(CALIBRATION_LEAST), most = log(CALIBRATION_MOST);
    assert(set->count > 0);
    if (slope(set, CALIBRATION_LEAST) <= 0) return CALIBRATION_LEAST;
    if (slope(set, CALIBRATION_MOST) >= 0) return CALIBRATION_MOST;
    for (int i = 0; i < HALVINGS; i++) {
        double middle = (least + most) / 2;
        if (slope(set, exp(middle)) > 0)
            least = middle;
        else
            most = middle;
    }
    return exp((least + most) / 2);
}
