/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_sum: the sums that the cache names files by: SHA-256, or git's SHA-1 of a blob.
 *
 * A summer is a thread that reads files while they come, so that a sum is ready a moment after the
 * last byte. It takes one file after the other, in the order of pull_summer_add.
 *
 * Thread: pull_sum_file any; the other functions main.
 * Memory: a job is the caller's, and lives until it is done or the summer is closed. */

#include "base/err.h"

#include <stdint.h>

#define PULL_SUM_BYTES 65 /* 64 hex digits and a NUL */

struct pull_summer;

/* The caller sets the first three, and reads the last three once the job is done. */
struct pull_sum_job {
    int fd;
    uint64_t bytes;
    bool is_git; /* git's SHA-1 of a blob, else SHA-256 */
    uint64_t ready;
    struct pull_sum_job *next;
    bool is_done;
    enum err err;
    struct error error;
    char sum[PULL_SUM_BYTES];
};

enum err pull_summer_open(struct pull_summer **ret_summer, struct error *error) MUST_CHECK;
/* Stops, also in the middle of a file. NULL is allowed. */
void pull_summer_close(struct pull_summer *summer);
void pull_summer_add(struct pull_summer *summer, struct pull_sum_job *job);
/* The bytes below `ready` may be read. */
void pull_summer_tell(struct pull_summer *summer, struct pull_sum_job *job, uint64_t ready);
/* True once the job has its sum or its error. */
bool pull_summer_is_done(struct pull_summer *summer, const struct pull_sum_job *job);

/* The sum of a whole file. `progress` (NULL allowed) gets the number of bytes read so far; if it
 * returns false, the result is ERR_CANCELLED. */
enum err pull_sum_file(const char *path, bool is_git, char ret_sum[PULL_SUM_BYTES],
                       bool (*progress)(void *context, uint64_t bytes), void *context,
                       struct error *error) MUST_CHECK;
