/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* bench: the cost of the scheduler itself, with a backend that costs nearly nothing. */

#include <stdint.h>

/* Runs `requests` requests, all submitted before the first step, with at most `sequences` running,
 * and prints the time by row. Returns the exit status. */
int bench_run(uint32_t requests, uint32_t sequences);
