/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* completion_order: where the results of an ended batch stand in its two files, in the order in
 * which they became durable. A client that followed the running batch can so continue after its
 * end.
 *
 * The file is order.idx in the batch's directory, and after an erasure another one of the same form
 * (store_order_name); integers are little-endian (the machine's own order).
 *
 *   offset  size  field
 *        0     4  magic, "QORD"
 *        4     4  version, 3
 *        8     8  count of places
 *       16    40  id of the batch, padded with NULs
 *       56     4  zero
 *       60     4  CRC-32C of the 60 bytes before it
 *       64   8·n  one u64 per place: offset of the line << 1 | 1 if it is in the error file;
 *                 all ones: the place has no line
 * 64 + 8·n  4·n  one u32 per place: bytes of the line with its LF; 0 without a line. A file of
 *                 version 1 ends before them
 * 64 +12·n  4·n  one u32 per place: CRC-32C of the line with its LF. A file of version 2 ends
 *                 before them
 *
 * Place i (from 0) belongs to the record with the sequence number i + 1. Lines that never ran
 * follow all records, in the order of the input. The place of a line that was erased has no line.
 *
 * A place is valid if (1) the header is, (2) its offset and its size lie in the file, (3) a line
 * begins there: at the start of the file or after a LF, (4) that line has its size, and (5) its
 * sum. A line that is only counted is held to (1) and (2); (5) is looked at before the first byte
 * of a line is given away.
 *
 * Thread: one per struct.
 * Memory: a builder holds 16 bytes per record; a reader has three descriptors, and a call
 *     17 KiB, however long a line is. */

#include "batch/page.h"
#include "store/batches.h"

#include "base/buf.h"

struct order_builder {
    uint64_t *places;
    uint32_t *sizes;
    uint32_t *sums;
    size_t count;
    size_t capacity;
};

/* `last_sequence` is the highest sequence number of the batch. */
void completion_order_init(struct order_builder *builder, uint64_t last_sequence);
void completion_order_release(struct order_builder *builder);
/* Adds the line at `offset` of the output or error file, with its LF; `sequence` 0: it never ran.
 */
void completion_order_add(struct order_builder *builder, uint64_t sequence, bool in_errors,
                          uint64_t offset, struct str line);
/* The size of the file that completion_order_write writes. */
uint64_t completion_order_bytes(const struct order_builder *builder);
/* Makes order.idx durable; it replaces an earlier one. */
enum err completion_order_write(const struct order_builder *builder, struct store *store,
                                const char *batch_id, struct error *error) MUST_CHECK;

/* A reader of the results of one ended batch. It goes on when their files are deleted meanwhile. */
struct order_reader {
    struct store *store;
    char batch_id[STORE_ID_BYTES];
    struct order_side { /* a result file */
        char id[STORE_ID_BYTES];
        int fd; /* -1 until a line of it is asked for */
        uint64_t bytes;
    } sides[2];     /* output, errors */
    int fd;         /* order.idx; -1: the batch has no result files */
    uint64_t count; /* places */
    bool has_sizes; /* the file has the sizes of lines, too */
    bool has_sums;  /* and their sums */
};

/* ERR_NOT_FOUND if order.idx is missing (batches older than that file). */
enum err completion_order_open(struct order_reader *ret_reader, struct store *store,
                               const struct store_batch *batch, struct error *error) MUST_CHECK;
/* Appends a page of lines. ERR_NOT_FOUND if a result file was deleted or has expired before its
 * first line was asked for. */
enum err completion_order_read(struct order_reader *reader, const struct page *page,
                               int64_t now_unix_s, struct buf *buf, struct page_read *ret_read,
                               struct error *error) MUST_CHECK;
void completion_order_close(struct order_reader *reader);

/* --- erasing --- */

/* Lines of one result file that become empty. */
struct order_erased {
    const struct order_erased_line {
        uint64_t offset; /* where the line begins in the old file */
        uint64_t gone;   /* bytes that the new file has less up to the end of this line */
    } * lines;           /* (count) in the order of the file */
    size_t count;
};

/* Writes the order of the files that `fresh`, the batch with its new ids, has: that of the old ones
 * without the erased lines of output and errors. ERR_NOT_FOUND if the batch has no order. */
enum err completion_order_erase(struct store *store, const struct store_batch *batch,
                                const struct store_batch *fresh,
                                const struct order_erased erased[2],
                                struct error *error) MUST_CHECK;
