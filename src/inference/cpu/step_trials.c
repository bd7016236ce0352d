/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/step_trials.h"

#include "base/log.h"

#include <stdlib.h>

/* A number of rows, and its rows per time as a multiple of those of the default in each round. */
struct number {
    uint32_t rows;
    double gains[STEP_TRIALS_ROUNDS];
};

/* A trial of every number. False when one of them cannot tell. */
static bool run_round(const struct step_trials *trials, struct number *numbers, uint32_t count,
                      uint32_t round) {
    double usual = 0;
    for (uint32_t i = 0; i < count; i++) {
        const int64_t ns = trials->run(trials->context, numbers[i].rows);
        if (ns <= 0) return false;
        const double speed = (double)numbers[i].rows / (double)ns;
        if (i == 0) usual = speed;
        numbers[i].gains[round] = speed / usual;
    }
    return true;
}

static int compare_gains(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the rounds; 0 if not three of four rounds have a gain at all. */
static double gain_of(struct number *number, uint32_t rounds) {
    qsort(number->gains, rounds, sizeof *number->gains, compare_gains);
    return number->gains[rounds / 4] > 1 ? number->gains[rounds / 2] : 0;
}

bool step_trials_choose(const struct step_trials *trials, uint32_t *ret_rows) {
    struct number numbers[STEP_TRIALS_NUMBERS];
    const int64_t begin_ns = trials->now_ns();
    uint32_t count = 0, rounds = 0;
    for (uint32_t rows = trials->most; count < STEP_TRIALS_NUMBERS && rows >= trials->least;
         rows /= 2)
        numbers[count++] = (struct number){.rows = rows};
    if (count < 2) return false;
    while (rounds < STEP_TRIALS_ROUNDS && trials->now_ns() - begin_ns < STEP_TRIALS_BUDGET_NS)
        if (!run_round(trials, numbers, count, rounds++)) return false;
    if (rounds < STEP_TRIALS_ROUNDS_LEAST) return false;
    double best = STEP_TRIALS_GAIN;
    *ret_rows = trials->most;
    for (uint32_t i = 1; i < count; i++) {
        const double gain = gain_of(&numbers[i], rounds);
        log_debug("event=step_trial rows=%u against=%u rounds=%u gain=%.3f", numbers[i].rows,
                  numbers[0].rows, rounds, gain);
        if (gain <= best) continue;
        best = gain;
        *ret_rows = numbers[i].rows;
    }
    return true;
}
