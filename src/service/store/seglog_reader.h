/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* seglog_reader: the records of a log in the order in which they were written.
 *
 * A reader walks while the writer appends. It sees durable records only, and of a line with several
 * records only the first. It knows no end: a log without a further record may get one later.
 *
 * Thread: one per reader; any number of readers per log, at the same time as the writer and
 *     seglog_read_record. The log must stay open.
 * Memory: one descriptor per reader; a call has 8 KiB, whatever the size of a record.
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
/* A part of a record's text, so that a reader of long texts needs little memory. */
struct seglog_part {
    uint64_t skip; /* bytes of the text to leave out; the caller sets it */
    size_t room;   /* bytes to append at most; the caller sets it */
    uint64_t line;
    uint64_t sequence;
    uint64_t text_bytes; /* bytes of the whole text */
};

/* Appends a part of the next record's text, and moves behind the record. *ret_more is false when
 * the log has no further record yet; then nothing is appended. Skips records that are no longer
 * valid, and forgets them (seglog_forget); with `skip`, or without `room`, only the header is
 * checked. ERR_NOT_FOUND when the batch's directory was
 * removed meanwhile. */
enum err seglog_reader_next(struct seglog_reader *reader, struct seglog_part *part, struct buf *buf,
                            bool *ret_more, struct error *error) MUST_CHECK;
void seglog_reader_close(struct seglog_reader *reader);
