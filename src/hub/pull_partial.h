/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_partial: a file that comes in parts, in any order, and survives a break:
 * BLOB.quern.incomplete has the bytes in their places and, behind them, a journal of how much of
 * each part is there.
 *
 * The journal is written twice in turn, each with a number and a CRC, and only after the bytes it
 * speaks of are on the disk; so whatever ends the process or the machine, what it says is so, and
 * at most PULL_UNSAVED_BYTES and what came since are fetched again. A file whose journal makes no
 * sense begins anew. Hugging Face's tools do not take the name for one of their own unfinished
 * files, but clean it away with them.
 *
 * Thread: the transfers'; another may read the bytes below pull_partial_ready from `fd`.
 * Memory: owns its table and its descriptor. */

#include "base/err.h"

#include <limits.h>
#include <stdint.h>

#define PULL_UNSAVED_BYTES ((uint64_t)16 << 20)

struct pull_partial {
    int fd;
    char path[PATH_MAX];
    uint64_t bytes; /* of the whole file */
    uint64_t part_bytes;
    uint32_t part_count;
    uint32_t *done; /* (part_count) bytes at the start of each part */
    uint64_t done_bytes;
    uint64_t unsaved_bytes;
    uint64_t number;      /* of the journal's next writing */
    uint32_t ready_parts; /* whole ones from the start on */
};

/* Opens what an earlier try left, or makes it. `blob` is the path of the file to be. */
enum err pull_partial_open(struct pull_partial *ret_partial, const char *blob, uint64_t bytes,
                           struct error *error) MUST_CHECK;
/* How many bytes an earlier try left; opens nothing. */
uint64_t pull_partial_left(const char *blob, uint64_t bytes);
/* Where a part begins and ends. */
uint64_t pull_partial_from(const struct pull_partial *partial, uint32_t part);
uint64_t pull_partial_to(const struct pull_partial *partial, uint32_t part);
/* Puts bytes in their place; they must continue what is done of their parts, or lie within it. */
enum err pull_partial_put(struct pull_partial *partial, uint64_t at, const char *bytes,
                          uint64_t count, struct error *error) MUST_CHECK;
enum err pull_partial_save(struct pull_partial *partial, struct error *error) MUST_CHECK;
/* All bytes before this one are there. */
uint64_t pull_partial_ready(struct pull_partial *partial);
bool pull_partial_is_whole(const struct pull_partial *partial);
/* Forgets all that came. */
enum err pull_partial_restart(struct pull_partial *partial, struct error *error) MUST_CHECK;
/* Makes it the file `blob`, durably. It must be whole. Close it all the same. */
enum err pull_partial_finish(struct pull_partial *partial, const char *blob,
                             struct error *error) MUST_CHECK;
void pull_partial_close(struct pull_partial *partial);
