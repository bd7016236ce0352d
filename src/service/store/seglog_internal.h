/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* seglog_internal: one batch's log as the scanner, the writer and the readers share it. Only store/
 * includes it.
 *
 * Thread: `lock` guards counts, often, order and last_sequence; positions are atomic. The fields
 *     below "writer thread" are the opener's until the writer has the log's first record.
 * Memory: seglog_close frees all of it. */

#include "store/seglog_format.h"
#include "store/store_internal.h"

/* Counters of the commonest answers, after Misra and Gries: an answer that makes up more than one
 * in SEGLOG_OFTEN + 1 of all has a counter at the end, and no counter is too high. */
#define SEGLOG_OFTEN 32
#define SEGLOG_READS_MAX 16 /* segments that publishing keeps open: 1 GiB of results */

struct often {
    uint32_t answer;
    uint64_t count; /* 0: free */
};

struct seglog {
    struct store *store;
    char dir[STORE_PATH_BYTES];
    struct segment_header identity; /* header of the batch's segments; only facts of the batch */
    uint64_t line_count;
    bool read_only;
    void (*report)(void *context, const char *sentence);
    void *report_context;

    /* Per line: segment index << 32 | offset of its record; 0 without a record. The scanner sets
     * it, and later the writer thread when the record is synced. */
    _Atomic(uint64_t) *positions;
    pthread_mutex_t lock;
    struct seglog_counts counts;
    struct often often[SEGLOG_OFTEN];
    /* The lines in the order of their records; readers follow it while the writer adds to it.
     * UINT32_MAX replaces a forgotten line. */
    uint32_t *order;
    size_t order_count;
    size_t order_capacity;
    uint64_t last_sequence; /* highest sequence number of a durable record */

    /* Writer thread: the segment that is appended to. It is open only while records are written and
     * synced, so that a log that waits holds no descriptor. */
    bool has_tail;          /* the highest segment takes the next record */
    int fd;                 /* file of that segment; -1: it is closed */
    uint32_t segment_index; /* highest index in use; 0: none */
    uint64_t end;           /* offset of the next record */
    uint64_t allocated;     /* bytes taken from the disk */
    uint64_t next_sequence;
    bool is_dirty; /* has bytes that are not synced */

    /* seglog_read_record's thread: some segments that are open for reading, each in the place that
     * its index gives it. */
    struct {
        uint32_t segment_index; /* 0: none is open */
        int fd;
    } reads[SEGLOG_READS_MAX];
};

/* "<dir>/seg-000001.log" */
void seglog_segment_path(const struct seglog *log, uint32_t index, char ret_path[STORE_PATH_BYTES]);
/* Tells the mirror, if there is one, of bytes of a segment. */
void seglog_tell_mirror(const struct seglog *log, uint32_t index, uint64_t at, const void *bytes,
                        size_t count);
/* Reads all segments: sets positions and counts, and the place of the next record. */
enum err seglog_scan(struct seglog *log, struct error *error) MUST_CHECK;
/* Counts a fault and passes the sentence to the log's `report`. */
void seglog_report(struct seglog *log, const char *format, ...) PRINTF_LIKE(2, 3);
/* Notes a record as durable; records come in the order of their sequence numbers. False for a
 * duplicate. The caller holds log->lock, unless no other thread knows the log yet. */
bool seglog_note(struct seglog *log, const struct seglog_found *found, uint64_t position);
