/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tail: the end of a batch. When it has no line left to give, and another worker that is ready has
 * room, lines that a worker has and has not begun are asked back, so that all end together
 * (queue/pace.h). A line that a worker has for far longer than any other took is asked back as
 * well, begun or not, once.
 *
 * Which lines have begun only the worker knows, and it gives back no other (worker_ops.recall). The
 * last ones given to it are asked for. What has not come back after 5 s has begun, and stays,
 * unless its node shows no sign of life: then the worker loses it. At a worker without `recall`,
 * such as an engine, to ask back is to cancel; and so it is for a line that takes too long. Its
 * answer may come nevertheless, and counts. A worker that has not ended a cancelled line after 5 s
 * loses it: what it answers later finds no slot. So a line is in one slot at a time, and has one
 * record.
 *
 * In a batch of several models no line is asked back: its lines go to whom has room, one by one.
 *
 * Thread: the dispatch thread, without the runner's lock.
 * Memory: none kept. */

#include "runner/runner.h"

/* Measures the workers (rates.h) and asks lines back, once per second; cheap when called more
 * often. */
void tail_tend(struct runner *runner);
