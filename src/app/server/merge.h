/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* merge: the two result files of a finished batch as one, in the order of the input file.
 *
 * Both files are in input order already, so one pass over the three files is enough: for each
 * request of the input, the next line of one of the two files has its custom_id.
 *
 * Thread: one.
 * Memory: one buffer per file, bounded by the longest line. */

#include "base/buf.h"
#include "base/err.h"

/* The form of the merged file. */
struct merge_form {
    void *context;
    /* Appends the form of one request and its result, both raw lines, to `out`. */
    enum err (*write)(void *context, struct str request, struct str result, struct buf *out,
                      struct error *error);
};

/* Appends each merged line, in a form or (NULL) as it is, to out_fd. A result descriptor is -1 if
 * the batch has no such file. ERR_CORRUPT, with the number of the line, if neither file has the
 * next custom_id. */
enum err merge_results(int input_fd, int output_fd, int error_fd, int out_fd,
                       const struct merge_form *form, struct error *error) MUST_CHECK;
