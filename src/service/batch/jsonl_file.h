/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* jsonl_file: the lines of a JSONL file one after another, in bounded memory. It skips blank lines
 * and a byte-order mark.
 *
 * Thread: one per struct.
 * Memory: a piece of the file and one line; a line over the bound ends the reading with
 * `failed`. */

#include "base/buf.h"
#include "base/err.h"

struct jsonl_file {
    int fd; /* owned; negative: no file and no lines */
    uint64_t offset;
    uint64_t bytes;
    struct buf buf;
    size_t at;       /* in buf: the next line */
    uint64_t number; /* number of the latest line, from 1, blank lines counted */
    bool failed;     /* the file could not be read to its end, for the reason in `why` */
    struct error why;
};

/* Makes a reader without a file; the caller sets fd and bytes. */
void jsonl_file_init(struct jsonl_file *file);
/* Makes a reader of a file from its begin. Whatever it returns, jsonl_file_end or jsonl_file_close
 * ends the reader. */
enum err jsonl_file_open(struct jsonl_file *ret_file, const char *path, struct error *error);
/* The next line that is not blank, without CR, LF and the space around it; valid until the next
 * call. False at the end. */
bool jsonl_file_next(struct jsonl_file *file, struct str *ret_line);
/* The offset in the file of the line that jsonl_file_next has just returned. */
uint64_t jsonl_file_line_at(const struct jsonl_file *file, struct str line);
void jsonl_file_close(struct jsonl_file *file);
/* Closes, and returns `err`; if that is OK, why the file could not be read to its end, with `name`
 * before the reason. A loop over the lines of a file ends so, or a damaged file looks short. */
enum err jsonl_file_end(struct jsonl_file *file, const char *name, enum err err,
                        struct error *error);
