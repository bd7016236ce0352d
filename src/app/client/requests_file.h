/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* requests_file: the file of requests that a command sends: a whole file, its first lines, standard
 * input, or lines that the command itself writes.
 *
 * What does not lie in a file of the user is kept in a file without a name in $TMPDIR (else /tmp),
 * which goes when the command ends, however it ends.
 *
 * Thread: main.
 * Memory: one line while the file is looked at. */

#include "base/err.h"

#include <stdint.h>

#define SUBMIT_ENDPOINT_BYTES 64

struct requests_file {
    int fd;
    uint64_t bytes; /* from the beginning; less than the file has if it was cut */
    uint64_t lines; /* requests in them; 0: not counted */
    const char *name;
    char endpoint[SUBMIT_ENDPOINT_BYTES]; /* the url of the first line; empty: it has none */
};

/* Opens a file, or standard input for "-". Sentences call it `name`. `lines_max` cuts it behind so
 * many requests (0: does not). ERR_NOT_FOUND, ERR_INVALID for a folder, an empty file or a first
 * line that is no JSON object. */
enum err requests_file_open(struct requests_file *ret_input, const char *path, const char *name,
                            uint64_t lines_max, struct error *error) MUST_CHECK;
void requests_file_close(struct requests_file *input);
/* Opens a file without a name for lines to come. */
enum err requests_file_scratch(int *ret_fd, struct error *error) MUST_CHECK;
