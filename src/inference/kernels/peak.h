/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* peak: what one core of this machine can do at most, measured by loops of one instruction in the
 * processor time of the calling thread, so that other work counts only through caches, memory and
 * the clock frequency. Each takes some milliseconds.
 *
 * Thread: any.
 * Memory: one block inside peak_read_gb_s and peak_update_gb_s. */

#include "kernels/kernels.h"

/* A unit of arithmetic that a matrix layout of a table rests on. */
struct peak {
    const char *what;
    double gop_s; /* a multiplication and an addition are two */
};

/* With the layout MATRIX_F32 also that of attention over a cache of f16. */
struct peak peak_of(const struct kernels *kernels, enum matrix_layout layout);
/* Additions that each wait for the one before, in billions per second: one per cycle. */
double peak_frequency_ghz(void);
/* Reading `bytes` over and over; 0 without memory. */
double peak_read_gb_s(size_t bytes);
/* Multiplying `bytes` in place, over and over; bytes read and bytes written count. */
double peak_update_gb_s(size_t bytes);
