/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* jsonl: splits a JSONL file into lines, in pieces of any size.
 *
 * Splits on LF only (never on U+0085, U+2028, U+2029, which are legal inside JSON strings), strips
 * one trailing CR, skips a byte-order mark at the start and blank lines, but counts them.
 *
 * Thread: one struct, one thread.  Memory: none; only positions are kept. */

#include "base/str.h"

struct jsonl_line {
    uint64_t number; /* 1-based, blank lines counted */
    uint64_t offset; /* of the first byte (after a byte-order mark) in the file */
    uint64_t bytes;  /* without CR and LF */
};

struct jsonl_splitter {
    uint64_t at; /* bytes seen */
    uint64_t line_start;
    uint64_t line_number; /* of the line being read, 1-based once started */
    bool blank;           /* only spaces, tabs and CR so far */
    bool ends_with_cr;
    unsigned char bom_seen;
    bool started;
};

typedef void (*jsonl_line_fn)(void *context, const struct jsonl_line *line);

void jsonl_init(struct jsonl_splitter *splitter);
/* Feeds the next bytes of the file; calls `line` for each non-blank line that ends in them. */
void jsonl_feed(struct jsonl_splitter *splitter, struct str bytes, jsonl_line_fn line,
                void *context);
/* The file has ended: the last line needs no LF. */
void jsonl_end(struct jsonl_splitter *splitter, jsonl_line_fn line, void *context);
