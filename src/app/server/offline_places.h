/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* offline_places: the files of a run whose input or output is a URL, an object of S3
 * (s3://BUCKET/KEY), or standard input or output ("-").
 *
 * An input is fetched into OUT.quern.input before the run, and stays for a run that goes on. An
 * output is written to `quern-SUM.jsonl` in the folder for such files, and sent from there when it
 * is whole. SUM is a hash of the output's URL without its query, so that a URL that was signed anew
 * means the same output. For standard output SUM is a hash of the input's name, so that the same
 * command finds what an earlier call has left. Standard input is read on every call, and compared
 * as a file is. What comes from S3 or goes there is continued after a break. Both files are removed
 * when the results have arrived. Results that a table does not show in whole (TABLE_REST) go to S3
 * next to it; a URL names one object, so they stay here.
 *
 * Thread: main.
 * Memory: the caller's struct, which borrows the names. */

#include "base/err.h"

#include <limits.h>
#include <stdbool.h>

struct offline_places {
    const char *input, *output; /* as the user names them */
    bool may_replace;           /* an object that exists */
    char input_path[PATH_MAX], output_path[PATH_MAX];
};

/* Finds the local names. `folder` is for outputs that are URLs; NULL: the current directory.
 * ERR_INVALID for a URL that is none, or names that are too long. */
enum err offline_places_find(struct offline_places *ret_places, const char *input,
                             const char *output, const char *folder,
                             struct error *error) MUST_CHECK;
/* Fetches an input that is a URL, unless an earlier call has fetched it and left results. Errors of
 * transfer_get and s3_get; ERR_CONFLICT if the output is an object that exists. */
enum err offline_places_fetch(const struct offline_places *places, const volatile bool *stop,
                              struct error *error) MUST_CHECK;
/* Removes a fetched input whose run has left no results: the next call fetches it anew. */
void offline_places_drop(const struct offline_places *places);
/* Sends a finished output that belongs to a URL, and removes what is no longer needed. After an
 * error of transfer_put or s3_put the results are in output_path still. */
enum err offline_places_send(const struct offline_places *places, const volatile bool *stop,
                             struct error *error) MUST_CHECK;
