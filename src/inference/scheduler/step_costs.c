/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/step_costs.h"

#include <assert.h>
#include <stdbool.h>

/* A time is kept for so many steps: one that other work has made long bars its rows no longer. To
 * try again what does not pay costs one step in so many. */
#define KEPT_STEPS 128u
/* A longer time counts 1/SLOWNESS, and at most twice the one that is known. */
#define SLOWNESS 16.0f

static float mixed(float known, float ns) {
    if (ns <= known) return ns;
    if (ns > 2 * known) ns = 2 * known;
    return known + (ns - known) / SLOWNESS;
}

static bool is_known(const struct step_costs *costs, uint32_t rows) {
    return costs->noted_at[rows] > 0 && costs->count - costs->noted_at[rows] < KEPT_STEPS;
}

/* A first time, at most that of the next fewer rows for each of its rows: more is other work. */
static float at_most_by_rows(const struct step_costs *costs, uint32_t rows, float ns) {
    uint32_t below = rows - 1;
    while (below > 0 && !is_known(costs, below)) below--;
    if (below == 0) return ns;
    const float most = costs->ns[below] * (float)rows / (float)below;
    return ns < most ? ns : most;
}

void step_costs_note(struct step_costs *costs, uint32_t rows, int64_t ns) {
    if (rows == 0 || ns <= 0) return;
    costs->count++;
    if (rows > STEP_COSTS_ROWS) {
        const float each = (float)ns / (float)rows;
        costs->row_ns = costs->row_ns > 0 ? mixed(costs->row_ns, each) : each;
        return;
    }
    costs->ns[rows] = is_known(costs, rows) ? mixed(costs->ns[rows], (float)ns)
                                            : at_most_by_rows(costs, rows, (float)ns);
    costs->noted_at[rows] = costs->count;
}

double step_costs_of(const struct step_costs *costs, uint32_t rows) {
    assert(rows > 0 && rows <= STEP_COSTS_ROWS);
    uint32_t below = rows, above = rows;
    while (below > 0 && !is_known(costs, below)) below--;
    while (above <= STEP_COSTS_ROWS && !is_known(costs, above)) above++;
    const bool has_above = above <= STEP_COSTS_ROWS;
    if (below == 0) return has_above ? (double)costs->ns[above] : 1;
    const double low = (double)costs->ns[below];
    double each = (double)costs->row_ns;
    if (below == rows) return low;
    if (has_above) each = ((double)costs->ns[above] - low) / (above - below);
    return low + (each > 0 ? each : 0) * (rows - below);
}
