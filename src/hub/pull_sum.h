/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_sum: the sums of files, as the cache names them: SHA-256, or SHA-1 of git's blob.
 *
 * A summer is a thread that reads files while they come, so that a sum is there a moment after the
 * last byte. It takes one file after the other, in the order they were added.
 *
 * Thread: pull_sum_file any; the rest main.  Memory: a job is the caller's and must live until it
 * is done or the summer is closed. */

#include "base/err.h"

#include <stdint.h>

#define PULL_SUM_BYTES 65 /* hex digits and a NUL */

struct pull_summer;

/* All but `fd` and `bytes` belong to the summer. */
struct pull_sum_job {
    int fd;
    uint64_t bytes;
    bool is_git; /* SHA-1 of a git blob */
    uint64_t ready;
    struct pull_sum_job *next;
    bool is_done;
    enum err err;
    struct error error;
    char sum[PULL_SUM_BYTES];
};

enum err pull_summer_open(struct pull_summer **ret_summer, struct error *error) MUST_CHECK;
/* Ends what it is at. NULL is allowed. */
void pull_summer_close(struct pull_summer *summer);
void pull_summer_add(struct pull_summer *summer, struct pull_sum_job *job);
/* Bytes below `ready` may be read. */
void pull_summer_tell(struct pull_summer *summer, struct pull_sum_job *job, uint64_t ready);
/* True once the sum, or the error, is there. */
bool pull_summer_is_done(struct pull_summer *summer, const struct pull_sum_job *job);

/* A whole file at once; `progress` (NULL allowed) hears how many bytes were read, and ends it with
 * ERR_CANCELLED by false. */
enum err pull_sum_file(const char *path, bool is_git, char ret_sum[PULL_SUM_BYTES],
                       bool (*progress)(void *context, uint64_t bytes), void *context,
                       struct error *error) MUST_CHECK;
