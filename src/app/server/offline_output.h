/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* offline_output: whether the files of a run may be read and written, found out before anything is
 * loaded, and the mark that tells a finished output from a foreign file.
 *
 * The mark is an extended attribute of the output: the sum of offline_input_mark and the count of
 * failed requests. Where the file system has no attributes, a finished output is a foreign file.
 *
 * Thread: main.
 * Memory: none. */

#include "server/offline_input.h"

#include <stdbool.h>
#include <stdint.h>

/* The file that is made in the folder of a run, for printf: the room for the folder, the folder. */
#define OFFLINE_OUTPUT_MADE "%.*s/output.jsonl"

struct offline_found {
    bool is_finished; /* the output has all results of this input */
    uint64_t failed;  /* requests that failed, of a finished output */
};

/* ERR_NOT_FOUND or ERR_DENIED for an input that cannot be read; ERR_INVALID when the output is the
 * input, a directory, no plain file, or in a folder that does not exist or cannot be written;
 * ERR_CONFLICT when the output exists, is not the result of this input, and `overwrite` is false.
 * `folder` has the results of an unfinished run, which also may have put the output there just
 * before it was killed: then the output is not finished. */
enum err offline_output_check(const struct offline_input *input, const char *output,
                              const char *folder, bool overwrite, struct offline_found *ret_found,
                              struct error *error) MUST_CHECK;
/* True if the output exists and is the result of this input, or is the file `made` of an unfinished
 * run. */
bool offline_output_is_own(const struct offline_input *input, const char *output, const char *made);
/* The error ERR_CONFLICT for a file that appeared under the name of the output during the run. */
enum err offline_output_came(const char *output, struct error *error) MUST_CHECK;
/* Marks the open output; the sum is that of the requests. */
void offline_output_mark(int fd, const struct offline_input *input,
                         const unsigned char requests_sha256[SHA256_BYTES], uint64_t failed);
