/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* mapped: a model file as bytes in memory, which the system reads when they are touched. It knows
 * no format.
 *
 * Thread: any.
 * Memory: the mapping, until mapped_close. A file that another process cuts short while it is
 *     mapped kills this process (SIGBUS). */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct mapped {
    const unsigned char *bytes;
    uint64_t count;
};

/* Maps the whole file. ERR_INVALID when it is empty or no regular file, "this is no KIND file: …";
 * ERR_NOT_FOUND or ERR_IO when it cannot be read. */
enum err mapped_open(struct mapped *ret_file, const char *path, const char *kind,
                     struct error *error) MUST_CHECK;
void mapped_close(const struct mapped *file);
/* Tells the system that these bytes will not be read again soon, so that a loader's memory never
 * holds the whole file. */
void mapped_drop_pages(const unsigned char *bytes, uint64_t count);
