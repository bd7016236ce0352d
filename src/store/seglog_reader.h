/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* seglog_reader: the records of a log in the order in which they were written, beside the writer:
 * only durable ones, and of a line that has several only the one that counts.
 *
 * Knows no end: when there is no further record, there may be one later.
 *
 * Thread: one a reader; any number of readers a log, beside the writer and seglog_read. The log
 * must stay open.  Memory: one descriptor.
 * Invariant: sequence numbers only grow. */

#include "store/seglog.h"

struct seglog_reader {
    struct seglog *log;
    size_t at;      /* in the log's order */
    uint64_t after; /* the last sequence number that was read */
    int fd;         /* of `segment`, or -1 */
    uint32_t segment;
};

/* Starts behind the record with the sequence number `after`, which need not be there. */
enum err seglog_reader_open(struct seglog_reader *ret_reader, struct seglog *log, uint64_t after,
                            struct error *error) MUST_CHECK;
/* Appends the text of the next record. *ret_more false: there is none yet, and nothing is written.
 * A record that is no longer what was written is stepped over. ERR_NOT_FOUND when the batch's
 * directory was removed meanwhile. */
enum err seglog_reader_next(struct seglog_reader *reader, struct buf *buf,
                            struct seglog_found *ret_found, bool *ret_more,
                            struct error *error) MUST_CHECK;
void seglog_reader_close(struct seglog_reader *reader);
