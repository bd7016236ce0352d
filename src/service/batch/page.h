/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* page: a run of a batch's result lines, and how much of it a reader takes at once.
 *
 * A page ends with whole lines; a piece of it ends at any byte, so that a reader needs little
 * memory, however long a line is. The next piece goes on at the place where the last one ended.
 * Pages come from published files (completion_order.h) and from logs (runner); both count in the
 * same way.
 *
 * Thread: one per struct.
 * Memory: none; the bytes are the caller's.
 * Invariant: a place with `skip` > 0 stands in the line whose sequence number is after + 1. */

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Where a reader stands. */
struct page_place {
    uint64_t after; /* lines passed: the sequence number of the last one */
    uint64_t skip;  /* bytes passed of the line behind them */
};

struct page {
    struct page_place from;
    uint64_t lines_max;
    uint64_t bytes_max; /* the page ends with the first line that reaches it */
    size_t room;        /* bytes to append at most */
    bool counts;        /* read on to the page's end when `room` is used up, and only count */
};

struct page_read {
    struct page_place next; /* place of the first byte that was not appended */
    uint64_t lines, bytes;  /* whole lines read, and their bytes; those that were counted too */
    uint64_t last;          /* place after the page: the number of its last line, or from.after */
    bool more;              /* there are, or may be, further lines */
    size_t room;            /* bytes that may still be appended */
    bool is_full;           /* nothing more is appended */
};

struct page_read page_begin(const struct page *page);
/* True while the page wants another line. */
bool page_wants(const struct page *page, const struct page_read *read);
/* Bytes of the next line that were passed before. */
uint64_t page_skip(const struct page *page, const struct page_read *read);
/* Notes a line of `line_bytes` whose next `appended` bytes were appended; `line_bytes` 0: its end
 * was not seen. ERR_CORRUPT if it is not the line in which the page begins. */
enum err page_note(const struct page *page, struct page_read *read, uint64_t sequence,
                   uint64_t line_bytes, size_t appended, struct error *error) MUST_CHECK;
