/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* regular: files of a folder of backups, which others may have had in their hands.
 *
 * A link in the folder would bring a file of this machine into the state directory, and a pipe or a
 * device would stop the reader. So below the folder itself no link is followed, and only regular
 * files are read. The folder's own name may be a link.
 *
 * Thread: any.
 * Memory: none. */

#include "base/err.h"

#include <stddef.h>

/* Opens dir/path for reading. ERR_CORRUPT if it is no regular file, or is reached by a link. */
enum err regular_open(int *ret_fd, const char *dir, const char *path,
                      struct error *error) MUST_CHECK;
/* As os_read_file. `file` begins with `dir` and a slash. */
enum err regular_read(const char *dir, const char *file, size_t bytes_max, char **ret_bytes,
                      size_t *ret_count, struct error *error) MUST_CHECK;
