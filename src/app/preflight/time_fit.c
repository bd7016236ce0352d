/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/time_fit.h"

#include <math.h>

/* Columns that are this near to proportional cannot be told apart. */
#define SINGULAR 1e-6

/* Sums of the normal equations; each row is divided by the root of its seconds. */
struct sums {
    double rows_rows, rows_steps, steps_steps, rows, steps, seconds;
};

static struct sums sum(const struct time_work *groups, size_t count) {
    struct sums is = {0, 0, 0, 0, 0, 0};
    for (size_t i = 0; i < count; i++) {
        const struct time_work *group = &groups[i];
        is.rows_rows += group->rows * group->rows / group->seconds;
        is.rows_steps += group->rows * group->steps / group->seconds;
        is.steps_steps += group->steps * group->steps / group->seconds;
        is.rows += group->rows;
        is.steps += group->steps;
        is.seconds += group->seconds;
    }
    return is;
}

static void fit_rows_only(struct time_fit *fit, const struct sums *is) {
    *fit = (struct time_fit){.per_row = is->rows / is->rows_rows};
    fit->inverse[0][0] = 1 / is->rows_rows;
}

static void fit_steps_only(struct time_fit *fit, const struct sums *is) {
    *fit = (struct time_fit){.per_step = is->steps / is->steps_steps};
    fit->inverse[1][1] = 1 / is->steps_steps;
}

/* False if the samples do not tell rows from steps. */
static bool fit_both(struct time_fit *fit, const struct sums *is) {
    double determinant = is->rows_rows * is->steps_steps - is->rows_steps * is->rows_steps;
    if (determinant <= SINGULAR * is->rows_rows * is->steps_steps) return false;
    *fit = (struct time_fit){
        .per_row = (is->steps_steps * is->rows - is->rows_steps * is->steps) / determinant,
        .per_step = (is->rows_rows * is->steps - is->rows_steps * is->rows) / determinant,
        .inverse = {{is->steps_steps / determinant, -is->rows_steps / determinant},
                    {-is->rows_steps / determinant, is->rows_rows / determinant}}};
    return true;
}

struct time_fit time_fit_of(const struct time_work *groups, size_t count) {
    struct sums is = sum(groups, count);
    struct time_fit fit;
    size_t factors = 2;
    if (count < 2 || !fit_both(&fit, &is) || fit.per_row < 0 || fit.per_step < 0) {
        bool has_row_time =
            count < 2 || is.steps_steps <= 0 || !fit_both(&fit, &is) || fit.per_row >= 0;
        factors = 1;
        if (has_row_time)
            fit_rows_only(&fit, &is);
        else
            fit_steps_only(&fit, &is);
    }
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        double told = fit.per_row * groups[i].rows + fit.per_step * groups[i].steps;
        double error = groups[i].seconds - told;
        squares += error * error / groups[i].seconds;
    }
    fit.freedom = count > factors ? count - factors : 0;
    if (fit.freedom == 0) return fit;
    double group_seconds = is.seconds / (double)count;
    fit.scatter = fmax(sqrt(squares / (double)fit.freedom / group_seconds), TIME_FIT_SCATTER_MIN);
    fit.variance = fit.scatter * fit.scatter * group_seconds;
    return fit;
}

struct interval time_fit_predict(const struct time_fit *fit, const struct time_work *work) {
    double mean = fit->per_row * work->rows + fit->per_step * work->steps;
    struct interval is = {mean, mean, mean, false};
    if (fit->freedom == 0 || mean <= 0) return is;
    double factors = fit->inverse[0][0] * work->rows * work->rows +
                     2 * fit->inverse[0][1] * work->rows * work->steps +
                     fit->inverse[1][1] * work->steps * work->steps;
    double variance = fit->scatter * fit->scatter + fit->variance * factors / (mean * mean);
    double ratio = exp(estimate_t(fit->freedom) * sqrt(variance));
    is.low = mean / ratio;
    is.high = mean * ratio;
    is.is_known = true;
    return is;
}
