/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pace: how many lines a worker may hold, and which of them another takes over, by measured rates.
 *
 * A worker that is much slower than the others of its model holds the end of a batch for as long as
 * its lines take there. Three rules keep that short:
 *
 *   1. a worker has at most the lines that it runs and those of its next 8 s (pace_bound);
 *   2. what is leased to it and not given to it goes to a worker that ends sooner, so that both end
 *      together (pace_share);
 *   3. when a batch has no line left to give, lines that a worker has and has not begun go back, so
 *      that all workers end together (pace_even_s, pace_recall). Once, a line that takes far longer
 *      than all others goes back, too (pace_is_overdue).
 *
 * A rate counts only time in which lines waited at the worker: what an idle worker could do is not
 * seen. A worker that has answered nothing in that time is taken to answer one line in it.
 *
 * Knows no batch, no thread and no clock.
 *
 * Thread: any; pure.
 * Memory: plain structs of the caller.
 * Invariant: a worker keeps the lines that it has begun, and at least one. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACE_LINES_MIN 8 /* lines beyond the running ones that any worker may have */

/* A rate of about the last minute. Zero is a valid start. */
struct pace {
    double lines;
    double seconds;
};

/* One of the workers that serve one model, and take lines. */
struct pace_worker {
    double rate;      /* lines per second; 0: not known */
    double weight;    /* what the operator gives it, more than 0 */
    uint32_t lines;   /* given to it and not answered */
    uint32_t running; /* those of them that it has begun; 0: none, or not known */
    uint32_t room;    /* how many more it may get now */
    bool is_silent;   /* it shows no sign of life: its lines may end elsewhere, and none end here */
};

void pace_note(struct pace *pace, double lines, double seconds);
/* Lines per second; 0 while less than 5 s are measured. */
double pace_rate(const struct pace *pace);
/* How often slower it is than the best, both for their weight; 1 if it is not four times slower. */
double pace_slowness(double rate_for_weight, double best_for_weight);

/* Lines that it may have at a time. `lines_max` while its rate is not known. */
uint32_t pace_bound(double rate, uint32_t running, uint32_t lines_max);
/* How many of the `left` lines that are leased to `other` and not given to it `own` takes over. */
uint32_t pace_share(const struct pace_worker *own, const struct pace_worker *other, uint32_t left);
/* The seconds in which all lines given end if the workers with room share them well. Workers whose
 * rate is not known get that of the best for their weight; 0: no rate is known. */
double pace_even_s(struct pace_worker *workers, size_t count);
/* How many of the lines of this worker go back, so that the rest ends in that time. 0 if that ends
 * the batch hardly sooner. */
uint32_t pace_recall(const struct pace_worker *worker, double even_s);
/* The longest time that a worker had a line, of those of the last minute or two in which lines were
 * answered: at the beginning of a batch workers may have more lines than later. */
struct pace_longest {
    double now_s, before_s; /* this minute's, and that before */
    double since_s;         /* when this minute began */
};
void pace_took(struct pace_longest *longest, double now_s, double took_s);
double pace_longest_s(const struct pace_longest *longest); /* 0: no line was answered */
/* Whether a line that a worker has for so long goes to another. */
bool pace_is_overdue(double age_s, double longest_s);
