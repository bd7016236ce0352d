/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* seglog: the results of one batch, appended to segment files as they come in; the only commit
 * point of a line. One writer thread serves all logs: it appends what is queued and syncs when
 * 256 KiB wait or 10 ms have passed, and only then tells that the records are durable.
 *
 * Segment: a header of 128 bytes, then records of a 48-byte header and a text (the final line of
 * the output or error file), all little endian; layouts in seglog_format.h.
 *
 * On opening, what cannot be read as a record and has no valid record of a higher sequence number
 * behind it, in the last segment, is a torn tail and cut off. Anything else that cannot be read is
 * corruption: the bytes stay, it is counted and reported, and its lines have no result, so that
 * they run again. The first record of a line wins; later ones are counted.
 *
 * Knows no JSON and no batch state.
 *
 * Thread: seglog_put and seglog_has from any; open and close from one; reads from one thread at a
 * time, but for those of seglog_reader.h.  Memory: 12 bytes a line, and at most 64 MiB of records
 * that wait to be written. Invariant: seglog_has(line) is true only for a line whose record was
 * synced. */

#include "base/buf.h"
#include "store/batches.h"

#define SEGLOG_TEXT_BYTES_MAX ((size_t)256 << 20)

enum seglog_kind { SEGLOG_SUCCESS = 1, SEGLOG_ERROR, SEGLOG_CANCELLED, SEGLOG_EXPIRED };

struct seglog;
struct seglog_writer;

/* What an answer looks like, noted with its record so that it need not be read again. */
#define SEGLOG_MARKS 4
enum seglog_mark {
    SEGLOG_TRUNCATED,  /* it ended because it was long enough */
    SEGLOG_EMPTY,      /* it has no text */
    SEGLOG_LOOKS_JSON, /* it begins as JSON does */
    SEGLOG_VALID_JSON, /* and it is JSON */
};

struct seglog_record {
    uint64_t line; /* 0-based index of the request in its file */
    enum seglog_kind kind;
    uint16_t attempt;
    uint32_t epoch;
    struct usage usage; /* each below 2^32; reused as a whole or not at all */
    uint8_t marks;      /* bits of enum seglog_mark; of successes */
    uint32_t answer;    /* a hash of its text; 0: none */
    struct str text;    /* one line with its LF */
};

struct seglog_options {
    const char *batch_id;
    uint64_t batch_sequence;
    unsigned char input_sha256[SHA256_BYTES];
    uint64_t line_count;
    bool read_only; /* nothing is cut, moved or made; seglog_put must not be used */
    /* Told of every fault that is found; one sentence. NULL allowed. */
    void (*report)(void *context, const char *sentence);
    void *report_context;
};

struct seglog_counts {
    uint64_t successes;
    uint64_t errors;
    uint64_t others;    /* cancelled and expired */
    struct usage usage; /* of successes */
    uint64_t duplicates;
    uint64_t corrupt;
    uint64_t recovered;           /* of all, found when the log was opened */
    uint64_t marks[SEGLOG_MARKS]; /* successes that have each */
    uint64_t identical;           /* about how many have the text that most have; never too many */
};

/* Opens the log of a batch and reads back what is there. */
enum err seglog_open(struct seglog **ret_log, struct store *store,
                     const struct seglog_options *options, struct error *error) MUST_CHECK;
/* Nothing may be queued for it. NULL is allowed. */
void seglog_close(struct seglog *log);

bool seglog_has(const struct seglog *log, uint64_t line);
struct seglog_counts seglog_counts(struct seglog *log);
/* Appends the text of a line's record to `buf`. ERR_NOT_FOUND when the line has none; ERR_CORRUPT
 * when it is not what was written: seglog_forget then makes the line run again. */
enum err seglog_read(struct seglog *log, uint64_t line, struct buf *buf, enum seglog_kind *ret_kind,
                     struct usage *ret_usage, struct error *error) MUST_CHECK;
/* As seglog_read, with everything that is known about the record but its text. */
struct seglog_found {
    uint64_t line;
    uint64_t sequence; /* from 1 on, in the order in which records were written */
    enum seglog_kind kind;
    struct usage usage;
    uint8_t marks;
    uint32_t answer;
};
enum err seglog_read_record(struct seglog *log, uint64_t line, struct buf *buf,
                            struct seglog_found *ret_found, struct error *error) MUST_CHECK;
/* The highest sequence number of a durable record; 0 while there is none. */
uint64_t seglog_last_sequence(struct seglog *log);
void seglog_forget(struct seglog *log, uint64_t line);

/* A record that has become durable, or was found to be a duplicate (which is durable too). */
struct seglog_done {
    uint64_t cookie; /* what seglog_put was given */
};

/* Called on the writer thread after every group. */
typedef void (*seglog_done_fn)(void *context, const struct seglog_done *done, size_t count);

enum err seglog_writer_open(struct seglog_writer **ret_writer, struct store *store,
                            seglog_done_fn done, void *context, struct error *error) MUST_CHECK;
/* Writes what is queued, unless the disk is full: then that is lost, and its lines run again. NULL
 * is allowed. */
void seglog_writer_close(struct seglog_writer *writer);
/* Queues a copy of the record. Waits only while 64 MiB are queued already. */
void seglog_put(struct seglog_writer *writer, struct seglog *log,
                const struct seglog_record *record, uint64_t cookie);
/* Bytes that are queued and not durable. */
uint64_t seglog_writer_backlog_bytes(struct seglog_writer *writer);
