/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* world: one seeded life of a scheduler: its requests, and the events that must follow. Failures
 * assert.
 *
 * Thread: one. */

#include <stdint.h>

/* Over all runs. */
struct world_totals {
    uint64_t steps;
    uint64_t requests;
    uint64_t sequences;
    uint64_t tokens;
    uint64_t rows;
    uint64_t refused;
    uint64_t cancelled;
    uint64_t finished_by_caller;
    uint64_t ended_under_way;   /* while the device computed rows of it */
    uint64_t ended_all_at_once; /* steps after which nothing ran that had two or more running */
    uint64_t preemptions;
    uint64_t preempted_twice;
    uint64_t evictions;
    uint64_t urgent;       /* urgent sequences that began */
    uint64_t passed;       /* requests that came in the middle of a step */
    uint64_t urgent_steps; /* steps that passed another */
    uint64_t hit_tokens;
    uint64_t copies;      /* pages of parts of blocks */
    uint64_t saves;       /* states saved */
    uint64_t restores;    /* sequences that went on from a stored state */
    uint64_t forgotten;   /* stored states */
    uint64_t ahead;       /* steps begun while another was under way */
    uint64_t put_off;     /* and such that had to wait for its end */
    uint64_t given;       /* tokens that were not sampled */
    uint64_t guessed;     /* tokens of guesses that had rows */
    uint64_t accepted;    /* those that were right */
    uint64_t late;        /* tokens that depend on the one before, with two steps under way */
    uint64_t events_hash; /* two runs of one seed must agree on it */
};

/* With at most `steps_max` steps under way, 1 or 2. */
void world_run(uint64_t seed, uint32_t steps, uint32_t steps_max, struct world_totals *totals);
