/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* jsonl_file: the lines of a JSONL file one after another, in bounded memory. Blank lines and a
 * byte-order mark are left out.
 *
 * Thread: one a struct.  Memory: a piece of the file and one line; a line over the bound ends the
 * reading with `failed`. */

#include "base/buf.h"

struct jsonl_file {
    int fd; /* negative: no file, no lines; the struct's to close */
    uint64_t offset;
    uint64_t bytes;
    struct buf buf;
    size_t at;       /* in buf: the next line */
    uint64_t number; /* of the line given last, from 1, blank ones counted */
    bool failed;     /* it could not be read to its end */
};

/* Without a file; the caller sets fd and bytes. */
void jsonl_file_init(struct jsonl_file *file);
/* The next line that is not blank, without CR and LF and space around it; valid until the next
 * call. False at the end. */
bool jsonl_file_next(struct jsonl_file *file, struct str *ret_line);
void jsonl_file_close(struct jsonl_file *file);
