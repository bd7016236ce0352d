/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* lines: the lines of a stream one after another, from a file or a pipe: those of JSONL without
 * blank ones and a byte-order mark, or each one whole.
 *
 * Thread: one.
 * Memory: a piece of the stream and one line of at most LINES_BYTES_MAX. The caller owns `fd`. */

#include "base/buf.h"
#include "base/err.h"

#define LINES_BYTES_MAX ((size_t)256 << 20)

struct lines {
    int fd; /* -1: no lines */
    struct buf bytes;
    size_t at;
    bool has_ended;
    uint64_t number; /* number of the current line, from 1; blank lines are counted */
    uint64_t offset; /* offset of the current line in the stream */
    uint64_t base;   /* offset of `bytes` in the stream */
    struct str line; /* the current one; `at` is NULL past the end */
};

void lines_init(struct lines *lines, int fd);
void lines_release(struct lines *lines);
/* Moves to the next line that is not blank, without its LF and space around it; the earlier line is
 * no longer valid. ERR_LIMIT for a line that is too long. */
enum err lines_next(struct lines *lines, struct error *error) MUST_CHECK;
/* Moves to the next line as the stream has it, with its LF. Together they are the stream. */
enum err lines_next_whole(struct lines *lines, struct error *error) MUST_CHECK;
