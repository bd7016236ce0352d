/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* arrival: where the results of an ended batch stand in its two files, in the order in which they
 * became durable, so that a reader who followed the running batch goes on where it was. order.idx
 * in the batch's directory:
 *
 *   header of 64 bytes: 0 magic u32 "QORD" | 4 version u32 | 8 places u64 | 16 batch id, 40 bytes
 *   with NULs | 56 zero | 60 crc32c u32 of the 60 bytes before it
 *   a u64 a place: offset of the line << 1 | 1 in the error file; all ones where there is no line
 *
 * Place i (from 0) is the record with the sequence number i + 1; lines that never ran come behind
 * all records, in the order of the input. A place is checked by what stands there: a line begins at
 * the start of the file or behind a LF.
 *
 * Thread: one a struct.  Memory: a builder holds 8 bytes a record; reading, one line. */

#include "store/batches.h"

#include "base/buf.h"

struct arrival_builder {
    uint64_t *places;
    size_t count;
    size_t capacity;
};

/* `last_sequence` is the highest there is. */
void arrival_init(struct arrival_builder *builder, uint64_t last_sequence);
void arrival_release(struct arrival_builder *builder);
/* A line at `offset` of the output or error file; `sequence` 0: it never ran. */
void arrival_add(struct arrival_builder *builder, uint64_t sequence, bool in_errors,
                 uint64_t offset);
/* How many bytes arrival_write writes. */
uint64_t arrival_bytes(const struct arrival_builder *builder);
/* Makes order.idx durable; one that is there already is replaced. */
enum err arrival_write(const struct arrival_builder *builder, struct store *store,
                       const char *batch_id, struct error *error) MUST_CHECK;

struct arrival_page {
    uint64_t after; /* places to leave out */
    uint64_t lines_max;
    size_t bytes_max; /* the page ends with the first line that reaches it */
    int64_t now_unix_s;
};

/* Appends lines of the result files behind place `after`, whole ones. *ret_last is the place
 * behind the last of them, *ret_more whether there are further ones. ERR_NOT_FOUND when a file is
 * deleted or expired, or order.idx is not there (batches of before it was written). */
enum err arrival_read(struct store *store, const struct store_batch *batch,
                      const struct arrival_page *page, struct buf *buf, uint64_t *ret_last,
                      bool *ret_more, struct error *error) MUST_CHECK;
