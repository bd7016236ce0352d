/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* store: the one state directory: SQLite for the few facts that need transactions, plain files for
 * bytes, segment logs for results (seglog.h). Files are in files.h, uploads
 * in parts in uploads.h, batches in batches.h.
 *
 *   LOCK                          held while open, so that two servers never share a directory
 *   meta.db                       rows of files, uploads and batches, the outbox (outbox.h)
 *   keys.jsonl                    not the store's: see http/key_file.h
 *   files/ab/<id>                 immutable bytes of uploads and published results, mode 0400
 *   parts/<id>                    bytes of uploads that are not complete yet
 *   batches/<id>/seg-000001.log   results as they come in; lines.idx beside them, order.idx later
 *   tmp/                          same file system; emptied at start
 *   ballast                       room for bookkeeping, given back when the disk is full
 *   dumps/engine-….txt            stacks of engines that hung or crashed (workers/engine/dump.h)
 *
 * Knows no JSON, no validation and no meaning of a state. A failed fsync ends the process (see
 * docs/internals/store.md): the next start resumes from what is on the disk.
 *
 * Thread: any; one writing connection behind a mutex.  Memory: owns everything it opened.
 * Invariant: a function that returned OK has made its effect durable. */

#include "base/err.h"
#include "protocol/request.h"

#include <stdatomic.h>
#include <stdint.h>

#define STORE_BALLAST_BYTES ((uint64_t)64 << 20)
#define STORE_SEGMENT_BYTES ((uint64_t)64 << 20)
#define STORE_ID_BYTES 64 /* room for any id quern makes, with its NUL */

struct store;

/* Zero is a valid start but for `dir`. */
struct store_options {
    const char *dir;        /* made when it is not there */
    uint64_t ballast_bytes; /* 0: STORE_BALLAST_BYTES, or an eighth of a smaller disk */
    uint64_t segment_bytes; /* 0: STORE_SEGMENT_BYTES; at least 64 KiB */
    bool read_only;         /* for fsck: nothing is made, emptied, repaired or written */
};

struct store_status {
    bool disk_full; /* results wait for space; uploads answer ERR_UNAVAILABLE */
    uint64_t free_bytes;
    uint64_t reserve_bytes; /* kept free for bookkeeping: the ballast */
    uint64_t wal_bytes;
    uint64_t log_append_bytes; /* since start, over all segment logs */
    uint64_t log_groups;       /* group commits since start */
    uint64_t log_corrupt_records;
    uint64_t duplicate_results;
};

/* Opens or makes the directory, checks the database, empties tmp/, removes bytes no row names.
 * ERR_CONFLICT when another process has it open, ERR_CORRUPT when the database is damaged or from
 * a newer version. */
enum err store_open(struct store **ret_store, const struct store_options *options,
                    struct error *error) MUST_CHECK;
void store_close(struct store *store); /* NULL is allowed */

const char *store_dir(const struct store *store);
void store_status(struct store *store, struct store_status *ret_status);

/* The path of a batch's own directory, made when it is not there. */
enum err store_batch_dir(struct store *store, const char *batch_id, char *ret_path,
                         size_t path_bytes, struct error *error) MUST_CHECK;
/* The file in it that stays when a batch has ended, as long as one of its result files does: in
 * which order the results came (batch/arrival.h). */
#define STORE_ORDER_NAME "order.idx"

/* A write met a full disk: gives the ballast back and remembers. */
void store_disk_filled(struct store *store);
/* What gave up for the lack of space will write `bytes` when it is done again: there is room only
 * when that fits too. For quern's own work; a client's big upload must not stop others. */
void store_wants_room(struct store *store, uint64_t bytes);
/* True when writing results is possible (again): while the disk was full this asks for room for
 * `bytes` beside the ballast and a quarter of it more, so that the next write does not fill the
 * disk again, and makes the ballast anew. */
bool store_has_room(struct store *store, uint64_t bytes);
