/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* jsonl: splits a JSONL file into lines, in pieces of any size.
 *
 * It splits on LF only (never on U+0085, U+2028 and U+2029, which are legal inside JSON strings)
 * and strips one trailing CR. It skips a byte-order mark at the start, and blank lines, which it
 * counts.
 *
 * Thread: one per struct.
 * Memory: none; it keeps only positions. */

#include "base/str.h"

struct jsonl_line {
    uint64_t number; /* 1-based, blank lines counted */
    uint64_t offset; /* in the file, of the first byte (after a byte-order mark) */
    uint64_t bytes;  /* without CR and LF */
};

struct jsonl_splitter {
    uint64_t at; /* bytes seen */
    uint64_t line_start;
    uint64_t line_number; /* number of the current line, 1-based once started */
    bool blank;           /* the current line has only spaces, tabs and CR so far */
    bool ends_with_cr;
    unsigned char bom_seen;
    bool started;
};

typedef void (*jsonl_line_fn)(void *context, const struct jsonl_line *line);

void jsonl_init(struct jsonl_splitter *splitter);
/* Takes the next bytes of the file and calls `line` for each non-blank line that ends in them. */
void jsonl_feed(struct jsonl_splitter *splitter, struct str bytes, jsonl_line_fn line,
                void *context);
/* Ends the file: the last line needs no LF. */
void jsonl_end(struct jsonl_splitter *splitter, jsonl_line_fn line, void *context);
