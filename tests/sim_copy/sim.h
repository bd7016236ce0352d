/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sim: one run: servers of one copy, their storage and their clients under one seed.
 *
 * The processes are groups of the rig's threads (tests/rig/threads.h), in one child process of the
 * simulator, so that all that they hold is gone with it. `sim` lies in memory that the child shares
 * with its parent.
 *
 * Thread: the simulated ones, one at a time.
 * Memory: one mapping. */

#include "plan.h"

#include "base/rng.h"

#define SIM_TRACE 40

struct sim {
    struct plan plan;
    int64_t now_ns;  /* the true time */
    char wrong[512]; /* the first violation; empty: none */
    bool is_verbose; /* notes are printed, too */
    bool is_quiet;   /* clients ask for nothing */
    char root[64];   /* folder of the state directories */
    /* What happened, for people. */
    uint64_t requests, entries, takeovers, told, trace_count;
    char trace[SIM_TRACE][160];
};

extern struct sim *sim;

/* A generator for one purpose of this run. */
struct rng sim_rng(uint64_t purpose);
/* Notes a violation and ends the run. */
void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Notes what happens now. */
void sim_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Restores the copy as if all servers ended now, and compares; the run goes on as before. */
void sim_check_copy(void);
/* Maps the world. */
void sim_begin(bool is_verbose);
void sim_end(void);
/* Runs the plan. False: a violation, whose sentence is in sim->wrong. */
bool sim_run(const struct plan *plan);
/* Takes events out of a plan that fails as long as it fails in the same way, and prints what is
 * left. */
void sim_explain(struct plan *plan);
