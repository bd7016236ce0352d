/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* peak: what one core of this machine can do at most, measured by loops of one instruction.
 *
 * Thread: one.
 * Memory: one large block inside peak_read_gb_s. */

#include "kernels/kernels.h"

/* A unit of arithmetic that a matrix layout of a table rests on. */
struct peak {
    const char *what;
    double gop_s; /* a multiplication and an addition are two */
};

struct peak peak_of(const struct kernels *kernels, enum matrix_layout layout);
/* Reading `bytes` over and over. */
double peak_read_gb_s(size_t bytes);
/* Multiplying `bytes` in place, over and over; bytes read and bytes written count. */
double peak_update_gb_s(size_t bytes);
