/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* step_clock: the expected end of the step under way: the next step is composed just before it.
 *
 * A request that arrives after the second step is composed waits for two steps. A second step that
 * is composed late has room for it. A step composed too late leaves the device idle, so the
 * estimate is short: the shorter of the last two steps of similar size, less a share and the time
 * of composing. Size means rows alone, because rows of decode and of prefill cost nearly the same,
 * and the lengths of contexts change slowly. It knows no scheduler and no device.
 *
 * Thread: that of the engine's loop.
 * Memory: one struct; zero is a valid start.
 * Invariant: at most STEP_CLOCK_STEPS steps have begun and not ended. */

#include <stdint.h>

#define STEP_CLOCK_STEPS 2u
#define STEP_CLOCK_BIN_ROWS 32u /* steps of one bin count as similar */
#define STEP_CLOCK_BINS 256u    /* the last one has all longer steps */

struct step_clock {
    struct {
        uint32_t rows;
        int64_t begun_ns;
    } steps[STEP_CLOCK_STEPS]; /* oldest first */
    uint32_t count;
    int64_t ended_ns;                    /* the newest end of a step */
    int64_t last_ns[STEP_CLOCK_BINS][2]; /* by rows: the last two durations, 0: none */
};

/* A step of `rows` rows was given to the device. */
void step_clock_begin(struct step_clock *clock, uint32_t rows, int64_t now_ns);
/* The oldest step has ended. */
void step_clock_end(struct step_clock *clock, int64_t now_ns);
/* The time at which the next step should be composed. 0, at once: not exactly one step is under
 * way, its duration is unknown, or it is too short to wait for. */
int64_t step_clock_due_ns(const struct step_clock *clock);
