/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/step_clock.h"

#include <assert.h>

#define KEPT_PERCENT 85                 /* share of the expected time: a step may be shorter */
#define COMPOSING_NS ((int64_t)2000000) /* 2 ms: 2,000 rows at 1 us per row */

static uint32_t bin_of(uint32_t rows) {
    uint32_t bin = rows / STEP_CLOCK_BIN_ROWS;
    return bin < STEP_CLOCK_BINS ? bin : STEP_CLOCK_BINS - 1;
}

/* The start of the oldest step: its submission to an idle device, or the end of the step before. */
static int64_t start_ns(const struct step_clock *clock) {
    int64_t begun_ns = clock->steps[0].begun_ns;
    return begun_ns > clock->ended_ns ? begun_ns : clock->ended_ns;
}

void step_clock_begin(struct step_clock *clock, uint32_t rows, int64_t now_ns) {
    assert(clock->count < STEP_CLOCK_STEPS);
    clock->steps[clock->count].rows = rows;
    clock->steps[clock->count++].begun_ns = now_ns;
}

void step_clock_end(struct step_clock *clock, int64_t now_ns) {
    assert(clock->count > 0);
    int64_t *last = clock->last_ns[bin_of(clock->steps[0].rows)];
    last[1] = last[0];
    last[0] = now_ns - start_ns(clock);
    clock->ended_ns = now_ns;
    clock->steps[0] = clock->steps[1];
    clock->count--;
}

int64_t step_clock_due_ns(const struct step_clock *clock) {
    if (clock->count != 1) return 0;
    const int64_t *last = clock->last_ns[bin_of(clock->steps[0].rows)];
    int64_t expected_ns = last[0] < last[1] ? last[0] : last[1];
    int64_t kept_ns = expected_ns / 100 * KEPT_PERCENT - COMPOSING_NS;
    return kept_ns > 0 ? start_ns(clock) + kept_ns : 0;
}
