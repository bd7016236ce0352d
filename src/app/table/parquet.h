/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* parquet: Parquet files through the program `quern-parquet`, which the Python wheel brings and
 * which does its work with Arrow (docs/adr/0018-parquet.md): rows of JSON in a pipe or a file.
 *
 * The program is the one next to this program, else the first in PATH. It writes its reasons to
 * standard error.
 *
 * Thread: one.
 * Memory: the caller's struct. */

#include "base/err.h"

#include <sys/types.h>

/* A Parquet file that is being read. */
struct parquet_reading {
    int fd; /* the pipe with a JSON object per row; owned */
    pid_t pid;
};

/* Starts to read. ERR_NOT_FOUND, with the remedy, if there is no such program. */
enum err parquet_read(struct parquet_reading *ret_reading, const char *path,
                      struct error *error) MUST_CHECK;
/* Ends a reading, at any time. ERR_INVALID if the program failed; NULL as `error` means that the
 * caller does not want the rest. */
enum err parquet_read_end(struct parquet_reading *reading, struct error *error);
/* Writes the rows of a JSONL file as a Parquet file. Columns that `like` (NULL allowed), another
 * Parquet file, has too, get the types that they have there. */
enum err parquet_write(const char *rows, const char *path, const char *like,
                       struct error *error) MUST_CHECK;
