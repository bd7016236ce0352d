/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* roofline: what this machine could compute at most, and what quern's kernels reach of it.
 *
 * A product of few rows cannot be faster than its weights are read, one of many rows not faster
 * than its instruction; the lower of the two is its roof. Likewise attention, whose keys and values
 * are read. All is measured on one core, in processor time, in two to four seconds. It reads no
 * model.
 *
 * Thread: one, and a pool's for the memory of all cores.
 * Memory: the caller's struct; blocks of some 100 MB while it measures. */

#include "base/err.h"

#include <stdint.h>

#define ROOFLINE_LINES_MAX 24
#define ROOFLINE_PEAKS_MAX 3

struct roofline_peak {
    const char *instruction;
    double gop_s; /* a multiplication and an addition are two */
};

struct roofline_line {
    char what[64];       /* "Q4_1 1024 to 65536, 64 rows" */
    const char *roof_of; /* "memory", or the instruction */
    double gop_s, gb_s;  /* reached */
    double roof_gop_s;
};

struct roofline {
    const char *kernels;
    double ghz;
    uint32_t cores;
    double memory_gb_s, l2_gb_s; /* one core reads */
    double all_memory_gb_s;      /* all cores read at the same time */
    struct roofline_peak peaks[ROOFLINE_PEAKS_MAX];
    struct roofline_line lines[ROOFLINE_LINES_MAX];
    uint32_t peak_count, line_count;
};

/* With the best table of this CPU. ERR_LIMIT without memory, ERR_UNAVAILABLE without fast
 * kernels. */
enum err roofline_measure(struct roofline *ret_roofline, struct error *error) MUST_CHECK;
