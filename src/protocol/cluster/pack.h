/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pack: what crosses the bus between a server and a node: many records in one piece.
 *
 *   offset  type  field
 *        0  u8    version of the layout, PACK_VERSION
 *        1  7     reserved, 0
 *        8  u64   round: the server's epoch · 2^24 + a count (fleet.h)
 *       16  u64   number of the pack in its round, from 1
 *       24        records
 *
 * A record, all numbers little-endian:
 *
 *        0  u32   bytes of the payload
 *        4  u32   CRC-32C over bytes 0 to 3 and all from byte 8 on
 *        8  u8    kind
 *        9  u8    worker of the node
 *       10  u16   reserved, 0
 *       12  u64   id: the server's number of the job
 *       20        the payload
 *
 * A record is valid if (1) it lies whole in its pack, (2) its CRC is right, and (3) its payload has
 * the fields of its kind. The layout is frozen: a later version appends fields to payloads and adds
 * kinds, and a reader skips both. So a server and a node of two releases understand each other.
 *
 * Thread: any; pure.
 * Memory: what is read is borrowed from the pack.
 * Invariant: a reader takes one step per record, and refuses the rest of a pack after a bad one. */

#include "base/buf.h"
#include "protocol/worker.h"

#define PACK_VERSION 1
#define PACK_HEAD_BYTES 24
#define PACK_RECORD_BYTES 20
#define PACK_BYTES_MAX ((size_t)96 << 20)

enum pack_kind {
    /* server → node */
    PACK_JOB = 1,
    PACK_CANCEL = 2,
    PACK_WANT = 3,   /* jobs wait for the worker's model */
    PACK_SYNC = 4,   /* the first record of a round: the node answers it with PACK_HELD */
    PACK_CLEAR = 5,  /* the node forgets the jobs of the worker that came before */
    PACK_RECALL = 6, /* the job comes back as OUTCOME_RETURNED, unless it has begun */
    /* node → server */
    PACK_RESULT = 16,
    PACK_DELTA = 17,
    PACK_DOWN = 18, /* the worker went down; its jobs are lost */
    PACK_ROOM = 19,
    PACK_HELD = 20, /* ids of jobs that have no result yet */
    PACK_BYE = 21,  /* the node has ended; no pack follows */
    PACK_KEPT = 22, /* the name of a line that the node has, before PACK_HELD */
};

struct pack_head {
    uint64_t round, seq;
};

struct pack_record {
    uint8_t kind, worker;
    uint64_t id;
    struct str payload;
};

struct pack_reader {
    struct str rest;
    bool is_bad;
};

/* Begins a pack in an empty buffer; pack_seal names its round and number before it is put. */
void pack_begin(struct buf *pack);
void pack_seal(struct buf *pack, uint64_t round, uint64_t seq);
static inline bool pack_is_empty(const struct buf *pack) {
    return pack->bytes <= PACK_HEAD_BYTES;
}
/* False for bytes that are no pack of this version. */
bool pack_open(struct pack_reader *ret_reader, struct pack_head *ret_head, struct str pack);
/* The next record; false at the end, and with `is_bad` at a record that is not valid. */
bool pack_next(struct pack_reader *reader, struct pack_record *ret_record);

/* Each appends one record. */
void pack_job(struct buf *pack, uint8_t worker, const struct worker_job *job);
/* `line`: the name of the job's line (worker_job.line). */
void pack_result(struct buf *pack, uint8_t worker, const struct worker_result *result,
                 struct str line);
void pack_text(struct buf *pack, enum pack_kind kind, uint8_t worker, uint64_t id, struct str text);
void pack_bare(struct buf *pack, enum pack_kind kind, uint8_t worker, uint64_t id);
void pack_want(struct buf *pack, uint8_t worker, enum tier tier, int64_t deadline_unix_s);
/* keeps_jobs: the node keeps the jobs of this server. adopts: it keeps lines of any server that led
 * before as well, and tells them (PACK_KEPT). The round is the record's id, where a sum covers it;
 * older releases have 0 there. */
void pack_sync(struct buf *pack, uint64_t round, bool keeps_jobs, bool adopts);
void pack_held(struct buf *pack, const uint64_t *ids, size_t count, bool is_last);
/* Appends a record that was read. */
void pack_copy(struct buf *pack, const struct pack_record *record);

/* Each reads the payload of its kind; false if it is not valid. */
bool pack_read_job(const struct pack_record *record, struct worker_job *ret_job);
/* *ret_line: empty from a node of a release that told none. */
bool pack_read_result(const struct pack_record *record, struct worker_result *ret_result,
                      struct str *ret_line);
bool pack_read_text(const struct pack_record *record, struct str *ret_text);
bool pack_read_want(const struct pack_record *record, enum tier *ret_tier,
                    int64_t *ret_deadline_unix_s);
bool pack_read_sync(const struct pack_record *record, bool *ret_keeps_jobs, bool *ret_adopts);
/* *ret_ids are `count` numbers of 8 bytes each, for pack_held_id. */
bool pack_read_held(const struct pack_record *record, struct str *ret_ids, size_t *ret_count,
                    bool *ret_is_last);
uint64_t pack_held_id(struct str ids, size_t index);
