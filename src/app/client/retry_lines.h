/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* retry_lines: the failed lines of an ended batch as a new file of requests, for servers that have
 * no retry of their own.
 *
 * The error file names the failed lines by their custom_id; their text comes from the user's own
 * file, or from the input file of the batch, which the server still has.
 *
 * Thread: main.
 * Memory: the custom_ids of the error file, and one line. */

#include "client/objects.h"
#include "client/remote.h"
#include "client/requests_file.h"

/* Writes the lines to a file without a name. `path` is the user's file (NULL: the server's).
 * ERR_INVALID if the batch has no failed lines, ERR_NOT_FOUND if a line of them is nowhere. */
enum err retry_lines_make(struct remote *remote, const struct batch_object *batch, const char *path,
                          struct requests_file *ret_input, struct error *error) MUST_CHECK;
