/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* step_clock: when the step under way will end, so that the next one is composed just before that.
 *
 * With two steps under way a request that arrives when the second one is composed already waits for
 * both. A second step that is composed late has room for it. Composed too late it leaves the device
 * idle, so the time is taken short: of the last two steps of about as many rows the shorter one
 * counts, less a share and less the time of composing. Rows of decode and of prefill cost nearly
 * the same; the lengths of contexts change slowly. It knows no scheduler and no device.
 *
 * Thread: the loop's.
 * Memory: one struct; zero is a valid start.
 * Invariant: at most STEP_CLOCK_STEPS steps have begun and not ended. */

#include <stdint.h>

#define STEP_CLOCK_STEPS 2u
#define STEP_CLOCK_BIN_ROWS 32u
#define STEP_CLOCK_BINS 256u /* the last one has all longer steps */

struct step_clock {
    struct {
        uint32_t rows;
        int64_t begun_ns;
    } steps[STEP_CLOCK_STEPS]; /* oldest first */
    uint32_t count;
    int64_t ended_ns;                    /* the newest end of a step */
    int64_t last_ns[STEP_CLOCK_BINS][2]; /* by rows: the last two durations, 0: none */
};

/* A step of so many rows was given to the device. */
void step_clock_begin(struct step_clock *clock, uint32_t rows, int64_t now_ns);
/* The oldest step has ended. */
void step_clock_end(struct step_clock *clock, int64_t now_ns);
/* The time at which the step after the newest one should be composed; 0, which means at once, where
 * no step is under way or its duration is not known. */
int64_t step_clock_due_ns(const struct step_clock *clock);
