/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* seglog_reader: the records of a log in the order in which they were written.
 *
 * A reader walks while the writer appends. It sees durable records only, and of a line with several
 * records only the first. It knows no end: a log without a further record may get one later.
 *
 * Thread: one per reader; any number of readers per log, at the same time as the writer and
 *     seglog_read_record. The log must stay open.
 * Memory: one descriptor per reader.
 * Invariant: the sequence numbers that a reader gives only grow. */

#include "store/seglog.h"

struct seglog_reader {
    struct seglog *log;
    size_t at;      /* in the log's order */
    uint64_t after; /* sequence number of the last record read */
    int fd;         /* descriptor of `segment`, or -1 */
    uint32_t segment;
};

/* Starts behind the sequence number `after`, whether or not a record has it. */
enum err seglog_reader_open(struct seglog_reader *ret_reader, struct seglog *log, uint64_t after,
                            struct error *error) MUST_CHECK;
/* Appends the text of the next record. *ret_more is false when the log has no further record yet;
 * then nothing is appended. Skips records that are no longer valid. ERR_NOT_FOUND when the batch's
 * directory was removed meanwhile. */
enum err seglog_reader_next(struct seglog_reader *reader, struct buf *buf,
                            struct seglog_found *ret_found, bool *ret_more,
                            struct error *error) MUST_CHECK;
void seglog_reader_close(struct seglog_reader *reader);
