/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* mirror: tells another who copies the state directory of each durable change, in their order.
 *
 * The order is that of the promises: bytes before their row, records before the end of their batch.
 * So whoever has a prefix of what was told has a state that a kill could have left.
 *
 * The database is told as pages: SQLite says after each commit how far its log reaches, and the
 * frames since the last commit are whole transactions. Files and database are read through SQLite's
 * own descriptors, because closing another one would drop its locks.
 *
 * Thread: `pages` runs under the database's lock; the others on any thread.
 * Memory: none; the mirror outlives the store.
 * Invariant: what is acknowledged was told before. */

#include "base/buf.h"
#include "base/err.h"

struct store;

struct store_mirror {
    void *context;
    /* Frames of a log of SQLite: per frame 24 bytes, then the page. The first eight are the number
     * of the page and, in the last frame of a transaction, the number of the database's pages. */
    void (*pages)(void *context, uint32_t page_bytes, struct str frames);
    /* Bytes at an offset of a file that grows; `path` is relative to the state directory. */
    void (*written)(void *context, const char *path, uint64_t at, struct str bytes);
    /* A file that will never change has got its name. Its copy may take a while, and may fail. */
    enum err (*placed)(void *context, const char *path, struct error *error);
    /* Waits until all that was told before the call is copied; false: not until then. */
    bool (*wait)(void *context, int64_t until_ns);
};

/* From now on `mirror` is told. The database's file is complete then. Before other threads use the
 * store. */
enum err store_mirror_set(struct store *store, const struct store_mirror *mirror,
                          struct error *error) MUST_CHECK;
/* Tells of bytes of a segment, or of a placed file; `path` begins with the store's directory.
 * Nothing without a mirror. */
void store_mirror_written(struct store *store, const char *path, uint64_t at, struct str bytes);
enum err store_mirror_placed(struct store *store, const char *path, struct error *error) MUST_CHECK;
/* True if all that is durable now is copied, at once without a mirror. */
bool store_mirror_wait(struct store *store, int64_t until_ns);

/* Brings all commits into the database's file and calls `at_rest` before the next commit.
 * ERR_UNAVAILABLE while another process reads an older state: try again later. */
enum err store_database_settle(struct store *store, void (*at_rest)(void *context), void *context,
                               struct error *error) MUST_CHECK;
/* Appends at most `count` bytes at `at` of the database's file; fewer at its end. They may be of
 * several moments: what was committed meanwhile is told. */
enum err store_database_read(struct store *store, uint64_t at, size_t count, struct buf *ret_bytes,
                             struct error *error) MUST_CHECK;
