/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* segment_reader: the valid records of one segment, by the rules of seglog_format.h.
 *
 * The scanner of a log reads a segment that nothing else writes. A backup reads one that a server
 * may be growing, so a reader sees bytes as they were when its window was read.
 *
 * Thread: one per struct.
 * Memory: the caller's window of SEGMENT_WINDOW_BYTES. */

#include "store/seglog_format.h"

#define SEGMENT_WINDOW_BYTES ((size_t)256 << 10)

/* The opener sets the first group; all else is zero at the start. */
struct segment_reader {
    int fd;
    uint64_t bytes;      /* size of the file */
    uint64_t data_bytes; /* end of its written bytes; zeros come after it (os_data_end) */
    unsigned char *window;
    uint64_t batch_sequence;
    uint64_t line_count;
    uint64_t next_sequence; /* lowest sequence number that a valid record may have */
    uint64_t search_budget; /* bytes that segment_find_record may still sum behind damage */

    uint64_t window_at;
    size_t window_bytes;
    struct error failure; /* set when a read failed */
};

/* The search budget of a segment of that size. */
uint64_t segment_search_budget(uint64_t bytes);
/* `count` bytes at `at`, at most SEGMENT_WINDOW_BYTES; NULL behind the end of the file or after a
 * failed read. */
const unsigned char *segment_peek(struct segment_reader *reader, uint64_t at, size_t count);
/* Drops the window, so that the next look reads the file again. */
void segment_look_again(struct segment_reader *reader);
/* True when a valid record stands at `at`. The caller raises next_sequence when it takes it. */
bool segment_record_at(struct segment_reader *reader, uint64_t at,
                       struct record_header *ret_header);
/* The first offset from `at` on with a valid record, or UINT64_MAX. The budget bounds the time for
 * damage that looks like many long records. */
uint64_t segment_find_record(struct segment_reader *reader, uint64_t at);

/* How many bytes of a segment are worth a copy, while a server may be appending to it: the header
 * and all records, with the damage between them, up to the end of the last valid record. 0: the
 * segment has no valid header yet. Every record that was durable before the call is among them.
 *
 * A record that is being written may be seen in part, and even a later one whole. So where no valid
 * record stands but a later one does, the place is read once more: the writer writes in ascending
 * order, so that the place is older than the later record. Only what is invalid then is damage. */
enum err segment_measure(int fd, uint64_t *ret_bytes, struct error *error) MUST_CHECK;
