/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* merge: the two result files of a finished batch as one, in the order of the input file.
 *
 * Both are in input order already, so one pass over the three files is enough: for each request of
 * the input, the next line of the one file or of the other has its custom_id.
 *
 * Thread: one.  Memory: a buffer for each file, bounded by the longest line. */

#include "base/err.h"

/* Appends to out_fd. A result fd is -1 when there is no such file. ERR_CORRUPT, with the line's
 * number, when neither result file has the next custom_id. */
enum err merge_results(int input_fd, int output_fd, int error_fd, int out_fd,
                       struct error *error) MUST_CHECK;
