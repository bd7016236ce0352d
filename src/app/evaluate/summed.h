/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* summed: the summary of requests that several runs have answered, as one run's: loading, time and
 * costs are the sums.
 *
 * Thread: one.
 * Memory: none is kept. */

#include "evaluate/candidate.h"

struct summed_part {
    const struct candidate *candidate;
    uint64_t requests; /* that the candidate ran */
};

/* Writes the summary of `lines` requests. A figure that one of the parts lacks is left out. */
enum err summed_write(const char *path, uint64_t lines, const struct summed_part *parts,
                      size_t count, struct error *error) MUST_CHECK;
