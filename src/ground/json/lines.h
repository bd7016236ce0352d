/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* lines: reads the lines of a stream, or of a part of a file, one after another. lines_next reads
 * them as JSONL, which skips blank lines and a byte-order mark; lines_next_whole gives every byte.
 *
 * Thread: one.
 * Memory: a piece of the stream and one line of at most LINES_BYTES_MAX. The caller owns `fd`. */

#include "base/buf.h"
#include "base/err.h"

#define LINES_BYTES_MAX ((size_t)256 << 20)
#define LINES_STREAM UINT64_MAX

struct lines {
    int fd; /* -1: no lines */
    struct buf bytes;
    size_t at;
    bool has_ended;
    uint64_t number; /* number of the current line, from 1; blank lines are counted */
    uint64_t offset; /* offset of the current line in the stream */
    uint64_t base;   /* offset of `bytes` in the stream */
    uint64_t end;    /* where a part of a file ends; LINES_STREAM: a stream */
    struct str line; /* the current one; `at` is NULL past the end */
};

void lines_init(struct lines *lines, int fd);
/* The lines between two offsets of a file. The descriptor's own offset is neither used nor moved. A
 * file that ends before `end` is an error. */
void lines_init_part(struct lines *lines, int fd, uint64_t begin, uint64_t end);
void lines_release(struct lines *lines);
/* Moves to the next line that is not blank, without its LF and space around it; the earlier line is
 * no longer valid. At the end `line.at` is NULL. ERR_LIMIT for a line that is too long. */
enum err lines_next(struct lines *lines, struct error *error) MUST_CHECK;
/* Moves to the next line as the stream has it, with its LF. Together they are the stream. */
enum err lines_next_whole(struct lines *lines, struct error *error) MUST_CHECK;
