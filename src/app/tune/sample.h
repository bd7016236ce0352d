/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sample: the first requests of a file, copied for trials.
 *
 * Requests that generate text are made greedy (temperature 0), so that two runs of the same weights
 * give the same text, and a setting that changes answers shows.
 *
 * Thread: one.
 * Memory: one line. */

#include "base/err.h"

#include <stdint.h>

/* Copies at most `lines_max` requests to the new file `path`; blank lines are passed over. A line
 * that is no JSON object is copied as it is, for the run to refuse. ERR_INVALID if there are no
 * requests. */
enum err sample_write(const char *input, uint32_t lines_max, const char *path, uint32_t *ret_lines,
                      struct error *error) MUST_CHECK;
