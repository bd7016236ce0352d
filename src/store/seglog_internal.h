/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* seglog_internal: one batch's log as the scanner, the writer and the reader share it. Only store/
 * includes it. */

#include "store/seglog_format.h"
#include "store/store_internal.h"

/* The answers that come most often, after Misra and Gries: with n answers, none that makes up more
 * than one in SEGLOG_OFTEN + 1 is missed, and no count is too high. */
#define SEGLOG_OFTEN 32

struct often {
    uint32_t answer;
    uint64_t count; /* 0: free */
};

struct seglog {
    struct store *store;
    char dir[STORE_PATH_BYTES];
    struct segment_header identity; /* of this batch's segments; index and sequence unused */
    uint64_t line_count;
    bool read_only;
    void (*report)(void *context, const char *sentence);
    void *report_context;

    /* By line: segment index << 32 | offset of the record; 0 while there is none. Set by the
     * scanner, then by the writer thread once the record is synced. */
    _Atomic(uint64_t) *positions;
    pthread_mutex_t lock; /* for counts, order and last_sequence */
    struct seglog_counts counts;
    struct often often[SEGLOG_OFTEN];
    /* The lines in the order of their records, first to last: what a reader beside the writer
     * follows. UINT32_MAX stands for a record that was forgotten. */
    uint32_t *order;
    size_t order_count;
    size_t order_capacity;
    uint64_t last_sequence; /* of the durable records */

    /* The writer thread's, once open. */
    int fd;                 /* of the segment that is appended to, or -1 */
    uint32_t segment_index; /* the highest there is; 0 for none */
    uint64_t end;           /* where the next record goes */
    uint64_t allocated;
    uint64_t next_sequence;
    bool is_dirty; /* written to since the last sync */

    /* The reader's: descriptors by segment index. */
    int *read_fds;
    size_t read_fd_count;
};

/* "<dir>/seg-000001.log" */
void seglog_segment_path(const struct seglog *log, uint32_t index, char ret_path[STORE_PATH_BYTES]);
/* Reads all segments: positions, counts, where to go on. */
enum err seglog_scan(struct seglog *log, struct error *error) MUST_CHECK;
/* Counts a fault and passes the sentence on. */
void seglog_report(struct seglog *log, const char *format, ...) PRINTF_LIKE(2, 3);
/* Notes a record as durable; records come in the order of their sequence numbers. False for a
 * duplicate. The caller holds log->lock, or is alone. */
bool seglog_note(struct seglog *log, const struct seglog_found *found, uint64_t position);
/* Appends the text of the record at `offset` of an open segment, if it is that of the line. */
enum err seglog_read_at(struct seglog *log, int fd, uint64_t offset, uint64_t line, struct buf *buf,
                        struct seglog_found *ret_found, struct error *error) MUST_CHECK;
