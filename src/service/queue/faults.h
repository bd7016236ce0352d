/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* faults: errors of a worker in a row, from which it counts as sick.
 *
 * A worker that fails at once has the fewest lines of all, and would get one after the other. A
 * sick one gets one line at a time, after a pause that doubles with each further error.
 *
 * Knows no worker, no thread and no clock.
 *
 * Thread: any; pure.
 * Memory: plain struct. */

#include <stdbool.h>
#include <stdint.h>

#define FAULTS_SICK 8
#define FAULTS_PAUSE_NS INT64_C(5000000000) /* the first pause */
#define FAULTS_DOUBLINGS 6                  /* how often it is doubled */

/* Zero is a valid start. */
struct faults {
    uint32_t count;  /* since its last other answer */
    uint32_t probes; /* those that came after a pause */
    int64_t due_ns;  /* sick: when it may get a line again */
};

/* The worker answered an error. True if it is sick from now on. */
bool faults_note(struct faults *faults, int64_t now_ns);
/* Any other answer: it is well. */
static inline void faults_end(struct faults *faults) {
    *faults = (struct faults){0};
}
static inline bool faults_are_many(const struct faults *faults) {
    return faults->count >= FAULTS_SICK;
}
