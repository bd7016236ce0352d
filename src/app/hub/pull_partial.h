/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_partial: a file that comes in parts, in any order, and survives a crash.
 *
 * BLOB.quern.incomplete has the bytes of the file in their places and, behind them, two journals:
 * which bytes of each part are present. The journals are written in turn, each after the bytes it
 * counts are on the disk: after a crash of the process or the machine, one journal is whole and
 * true. A crash costs at most PULL_UNSAVED_BYTES and the bytes of one write. A file without a valid
 * journal begins anew. Hugging Face's tools do not take the name for one of their own unfinished
 * files, but delete it together with them.
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
    uint64_t bytes; /* size of the whole file */
    uint64_t part_bytes;
    uint32_t part_count;
    uint32_t *done; /* (part_count) bytes there, from the start of each part on */
    uint64_t done_bytes;
    uint64_t unsaved_bytes;
    uint64_t number;      /* the next journal's number */
    uint32_t ready_parts; /* whole parts from the start of the file on */
};

/* Opens the file that an earlier pull left, or makes one. `blob` is the path of the finished
 * file. */
enum err pull_partial_open(struct pull_partial *ret_partial, const char *blob, uint64_t bytes,
                           struct error *error) MUST_CHECK;
/* The bytes that an earlier pull left; nothing stays open. */
uint64_t pull_partial_left(const char *blob, uint64_t bytes);
/* The first byte of a part, and the byte behind its last. */
uint64_t pull_partial_from(const struct pull_partial *partial, uint32_t part);
uint64_t pull_partial_to(const struct pull_partial *partial, uint32_t part);
/* Puts bytes in their place. In each part they must not leave a gap behind the bytes that are done.
 * Writes a journal every PULL_UNSAVED_BYTES. */
enum err pull_partial_put(struct pull_partial *partial, uint64_t at, const char *bytes,
                          uint64_t count, struct error *error) MUST_CHECK;
/* Writes a journal, unless no byte came since the last one. */
enum err pull_partial_save(struct pull_partial *partial, struct error *error) MUST_CHECK;
/* The first byte that is missing: all bytes before it are present. */
uint64_t pull_partial_ready(struct pull_partial *partial);
bool pull_partial_is_whole(const struct pull_partial *partial);
/* Throws all bytes away. */
enum err pull_partial_restart(struct pull_partial *partial, struct error *error) MUST_CHECK;
/* Makes it the file `blob`, durably. It must be whole, and must still be closed. */
enum err pull_partial_finish(struct pull_partial *partial, const char *blob,
                             struct error *error) MUST_CHECK;
void pull_partial_close(struct pull_partial *partial);
