/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tail: the end of a batch. When it has no line left to give, and a worker has room, lines that
 * another worker has and has not begun are asked back, so that all end together (queue/pace.h). A
 * line that a worker has for far longer than any other took is asked back as well, once.
 *
 * To ask back is to cancel the job. Its answer may come nevertheless, and counts. A worker that has
 * not given a line back after 5 s, such as a node that is paused, loses it: what it answers later
 * finds no slot. So a line is in one slot at a time, and has one record.
 *
 * Which lines a worker has not begun is not known. The last ones given to it are taken for these.
 * In a batch of several models no line is asked back: its lines go to whom has room, one by one.
 *
 * Thread: the dispatch thread, without the runner's lock.
 * Memory: none kept. */

#include "runner/runner.h"

/* Measures the workers (rates.h) and asks lines back, once per second; cheap when called more
 * often. */
void tail_tend(struct runner *runner);
