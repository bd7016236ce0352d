/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* store: the state directory.
 *
 * SQLite keeps the few facts that need transactions, plain files keep bytes, segment logs keep
 * results (seglog.h). Files are in files.h, uploads in parts in uploads.h, batches in batches.h,
 * judgements of their answers in judgements.h, and sums of their files in proofs.h.
 *
 *   LOCK                          locked while open, so that two servers never share a directory
 *   moved, restoring              marks that keep the directory closed (state_marks.h)
 *   meta.db                       rows of files, uploads, batches, judgements, proofs; the outbox
 *   keys.jsonl                    not the store's: see keys/key_file.h
 *   files/ab/<id>                 immutable bytes of uploads and published results, mode 0400
 *   parts/<id>                    bytes of uploads that are not complete
 *   batches/<id>/seg-000001.log   results of a batch that has not ended
 *   batches/<id>/lines.idx        places of the batch's lines in its input (batch/index.h)
 *   batches/<id>/order.idx        order in which the results came (batch/completion_order.h);
 *                                 order.X.idx after an erasure (batches.h)
 *   label_studio/                 not the store's: see api/studio.h
 *   cache/00000001.seg            answers kept for equal requests (result_cache.h)
 *   tmp/                          spools on the same file system; emptied at start
 *   ballast                       room for bookkeeping, removed when the disk is full
 *   dumps/engine-….txt            stacks of engines that hung or crashed (workers/engine/dump.h)
 *
 * It knows no JSON, no validation and no meaning of a state. A failed fsync ends the process
 * (docs/internals/service/store.md): the next start resumes from the bytes on the disk.
 *
 * Thread: any; one writing connection behind a mutex.
 * Memory: owns everything it opened.
 * Invariant: a function that returned OK has made its effect durable. */

#include "base/err.h"
#include "base/histogram.h"
#include "protocol/request.h"

#include <stdatomic.h>
#include <stdint.h>

#define STORE_BALLAST_BYTES ((uint64_t)64 << 20)
#define STORE_SEGMENT_BYTES ((uint64_t)64 << 20)
#define STORE_ID_BYTES 64 /* room for every id that quern makes, with its NUL */

struct store;

/* All zero is valid, except for `dir`. */
struct store_options {
    const char *dir;        /* created if it does not exist */
    uint64_t ballast_bytes; /* 0: STORE_BALLAST_BYTES, at most an eighth of the disk */
    uint64_t segment_bytes; /* 64 KiB to 2 GiB (default, with 0: STORE_SEGMENT_BYTES) */
    bool read_only;         /* for fsck: create, empty, repair and write nothing */
};

/* Bounds of the histograms. */
extern const struct histogram_bounds store_sync_bounds;
extern const struct histogram_bounds store_group_bounds;
extern const struct histogram_bounds store_batch_bounds;

#define STORE_ENDS                                                                                 \
    4 /* completed, failed, expired and cancelled, in the order of enum batch_status */

struct store_status {
    bool disk_full; /* results wait for space; uploads answer ERR_UNAVAILABLE */
    uint64_t free_bytes;
    uint64_t size_bytes;    /* size of the directory's file system */
    uint64_t reserve_bytes; /* size of the ballast */
    uint64_t wal_bytes;
    uint64_t log_append_bytes;          /* since start, over all segment logs */
    uint64_t log_groups;                /* group commits since start */
    struct histogram log_sync_seconds;  /* per fdatasync of a segment log (store_sync_bounds) */
    struct histogram log_group_records; /* records per group commit (store_group_bounds) */
    uint64_t log_corrupt_records;
    uint64_t duplicate_results;
    /* Per batch that ended since start, from its creation to its end (store_batch_bounds). */
    struct histogram batch_seconds[STORE_ENDS];
    int64_t open_ns; /* how long store_open took */
};

/* Opens or creates the directory, checks the database, empties tmp/, and removes bytes that no row
 * names. ERR_CONFLICT when another process has it open, ERR_CORRUPT when the database is damaged or
 * a newer quern's. */
enum err store_open(struct store **ret_store, const struct store_options *options,
                    struct error *error) MUST_CHECK;
void store_close(struct store *store); /* NULL is allowed */

const char *store_dir(const struct store *store);
/* True for an id that may be part of a path: 8 to 63 letters, digits, '-' and '_'. */
bool store_id_is_sane(struct str id);
void store_status(struct store *store, struct store_status *ret_status);

/* The path of a batch's own directory, which is created if it does not exist. */
enum err store_batch_dir(struct store *store, const char *batch_id, char *ret_path,
                         size_t path_bytes, struct error *error) MUST_CHECK;
/* The file of that directory that outlives the batch, as long as one of its result files exists:
 * the order in which the results came (batch/completion_order.h). */
#define STORE_ORDER_NAME "order.idx"
/* The file of the state directory that says what has computed here since when, for the manifests of
 * batches. */
#define STORE_NOTES_NAME "computed_by.jsonl"

/* Notes that a write met a full disk, and removes the ballast. */
void store_disk_filled(struct store *store);
/* Notes that work which stopped at a full disk will write `bytes` when it is repeated, so that
 * store_has_room waits for these too. Only quern's own work calls it: a client's big upload must
 * not keep all other work waiting. */
void store_wants_room(struct store *store, uint64_t bytes);
/* True when results can be written. After a full disk it needs room for `bytes`, a new ballast and
 * a quarter of a ballast more, so that the next write does not fill the disk again; then it creates
 * the ballast. */
bool store_has_room(struct store *store, uint64_t bytes);
