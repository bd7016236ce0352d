/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* seglog: the results of one batch, appended to segment files in the order in which they arrive.
 *
 * A record in the log is the only commit point of a line. seglog_writer.h appends records. The
 * bytes of a segment, and how a reader tells damage from a torn tail, are in seglog_format.h.
 *
 * Opening a log reads it back. A torn tail is cut off. Damage stays on the disk, is counted and
 * reported, and its lines have no record, so that they run again. The first record of a line wins;
 * later ones are counted as duplicates.
 *
 * It knows no JSON and no state of a batch.
 *
 * Thread: seglog_has from any; open and close from one; reads from one thread at a time, except
 *     through seglog_reader.h.
 * Memory: 12 bytes per line.
 * Invariant: seglog_has(line) is true only for a line whose record was synced. */

#include "base/buf.h"
#include "store/batches.h"

#define SEGLOG_TEXT_BYTES_MAX ((size_t)256 << 20)

enum seglog_kind { SEGLOG_SUCCESS = 1, SEGLOG_ERROR, SEGLOG_CANCELLED, SEGLOG_EXPIRED };

struct seglog;

/* Properties of an answer, kept in its record so that a restart need not read the answer again. */
#define SEGLOG_MARKS 4
enum seglog_mark {
    SEGLOG_TRUNCATED,  /* it ended at its limit of tokens */
    SEGLOG_EMPTY,      /* it has no text */
    SEGLOG_LOOKS_JSON, /* it begins as JSON does */
    SEGLOG_VALID_JSON, /* it begins as JSON does and is valid JSON */
};

struct seglog_record {
    uint64_t line; /* index of the request in the input file, from 0 on */
    enum seglog_kind kind;
    uint16_t attempt;
    uint32_t epoch;
    struct usage usage;   /* each count below 2^32; reused as a whole or not at all */
    uint8_t marks;        /* bits of enum seglog_mark; only successes have any */
    uint32_t answer;      /* hash of the answer's text; 0: no text */
    enum shape_end shape; /* a success: up to SHAPE_UNCHECKED; else: none, or from SHAPE_REFUSED */
    struct str text;      /* one line with its LF */
};

struct seglog_options {
    const char *batch_id;
    uint64_t batch_sequence;
    unsigned char input_sha256[SHA256_BYTES];
    uint64_t line_count;
    bool read_only; /* cut, move and create nothing; seglog_put must not be used */
    /* Receives one sentence per fault found. NULL is allowed. */
    void (*report)(void *context, const char *sentence);
    void *report_context;
};

struct seglog_counts {
    uint64_t successes;
    uint64_t errors;
    uint64_t others;    /* cancelled and expired */
    struct usage usage; /* usage of successes */
    uint64_t duplicates;
    uint64_t corrupt;
    uint64_t recovered;               /* records that were found when the log was opened */
    uint64_t marks[SEGLOG_MARKS];     /* successes per mark */
    uint64_t cut_before_text;         /* successes with SEGLOG_TRUNCATED and SEGLOG_EMPTY */
    uint64_t identical;               /* successes with the commonest text; a lower bound */
    uint64_t shapes[SHAPE_END_COUNT]; /* records per end of a shape; the first one is 0 */
};

/* Opens the log of a batch and reads its records back. */
enum err seglog_open(struct seglog **ret_log, struct store *store,
                     const struct seglog_options *options, struct error *error) MUST_CHECK;
/* No record may be queued for the log. NULL is allowed. */
void seglog_close(struct seglog *log);
/* Closes the segments that seglog_read_record has opened; it opens them again. */
void seglog_close_reads(struct seglog *log);

bool seglog_has(const struct seglog *log, uint64_t line);
struct seglog_counts seglog_counts(struct seglog *log);
/* A record without its text. */
struct seglog_found {
    uint64_t line;
    uint64_t sequence; /* from 1 on, in the order in which records were written */
    enum seglog_kind kind;
    struct usage usage;
    uint8_t marks;
    uint32_t answer;
    enum shape_end shape;
};
/* Appends the text of a line's record to `buf`. ERR_NOT_FOUND when the line has no record.
 * ERR_CORRUPT when the record is no longer valid: seglog_forget then lets the line run again. */
enum err seglog_read_record(struct seglog *log, uint64_t line, struct buf *buf,
                            struct seglog_found *ret_found, struct error *error) MUST_CHECK;
/* The highest sequence number of a durable record; 0 while the log is empty. */
uint64_t seglog_last_sequence(struct seglog *log);
/* Forgets the line's record: seglog_has is false from here on. The counts do not change. */
void seglog_forget(struct seglog *log, uint64_t line);
