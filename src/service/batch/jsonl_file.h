/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* jsonl_file: the lines of a JSONL file (json/lines.h) for a loop that ends at the first line that
 * cannot be read, and says why behind the loop.
 *
 * Thread: one per struct.
 * Memory: a piece of the file and one line. */

#include "base/err.h"
#include "json/lines.h"

struct jsonl_file {
    struct lines lines; /* `number` and `offset` are those of the latest line */
    bool is_owner;      /* closes the descriptor */
    bool failed;        /* the file could not be read to its end, for the reason in `why` */
    struct error why;
};

/* Makes a reader without a file: it has no lines. */
void jsonl_file_init(struct jsonl_file *file);
/* Makes a reader of a file, which has no lines if it cannot be opened. Whatever it returns,
 * jsonl_file_end or jsonl_file_close ends the reader. */
enum err jsonl_file_open(struct jsonl_file *ret_file, const char *path, struct error *error);
/* Gives a reader without a file the first `bytes` of an open one. jsonl_file_take makes it the owner
 * of the descriptor; with jsonl_file_borrow the caller keeps it open for longer than the reader. */
void jsonl_file_take(struct jsonl_file *file, int fd, uint64_t bytes);
void jsonl_file_borrow(struct jsonl_file *file, int fd, uint64_t bytes);
/* Has the lines begin at this offset; called before jsonl_file_next. */
void jsonl_file_skip_to(struct jsonl_file *file, uint64_t offset);
/* The next line that is not blank, without CR, LF and the space around it; valid until the next
 * call. False at the end. */
bool jsonl_file_next(struct jsonl_file *file, struct str *ret_line);
void jsonl_file_close(struct jsonl_file *file);
/* Closes, and returns `err`; if that is OK, why the file could not be read to its end, with `name`
 * before the reason. A loop over the lines of a file ends so, or a damaged file looks short. */
enum err jsonl_file_end(struct jsonl_file *file, const char *name, enum err err,
                        struct error *error);
