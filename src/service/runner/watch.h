/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* watch: how fast the active batches progress, which of them will be late, and which are stuck and
 * why.
 *
 * Thread: the dispatch thread, without the runner's lock.
 * Memory: none kept. */

#include "runner/runner.h"

/* Measures, decides and reports, about once a second, and looks at the machine (machine.h); cheap
 * when called more often. */
void watch_batches(struct runner *runner);
