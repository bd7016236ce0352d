/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_store: one repository of the Hugging Face cache, for writing:
 *
 *     ROOT/models--ORG--NAME/blobs/DIGEST                  the files, by their sums
 *     ROOT/models--ORG--NAME/snapshots/COMMIT/PATH         links to them
 *     ROOT/models--ORG--NAME/refs/REVISION                 the commit of a revision
 *     ROOT/.locks/models--ORG--NAME/DIGEST.lock            flock: held by the program that fetches
 *
 * The layout is that of the "Hub Local Cache" reference: Hugging Face's tools find the files that
 * quern fetched and wait while it fetches, and quern does the same for theirs. A blob appears
 * whole, by rename; a link after its blob, and the reference after all links. Files have the modes
 * that the umask leaves, as the other tools' files do.
 *
 * Thread: main.
 * Memory: the caller's struct. */

#include "base/err.h"
#include "hub/pull_plan.h"

#include <limits.h>

struct pull_store {
    char root[PATH_MAX]; /* real */
    char folder[PATH_MAX];
    char locks[PATH_MAX];
};

/* Makes the folders. pull_is_repository must take `repository`. */
enum err pull_store_open(struct pull_store *ret_store, const char *cache, const char *repository,
                         struct error *error) MUST_CHECK;
/* Tries to lock a file for fetching. *ret_fd is -1 if another program holds the lock; closing it
 * unlocks. On a file system without locks, every caller gets a descriptor. */
enum err pull_store_lock(const struct pull_store *store, const char *digest, int *ret_fd,
                         struct error *error) MUST_CHECK;
enum err pull_store_blob_path(const struct pull_store *store, const char *digest,
                              char ret_path[PATH_MAX], struct error *error) MUST_CHECK;
/* Whether the cache has the file, with that size. */
bool pull_store_has(const struct pull_store *store, const char *digest, uint64_t bytes);
/* Makes the link of one file of a snapshot, and the folders above it. */
enum err pull_store_link(const struct pull_store *store, const char *commit, const char *path,
                         const char *digest, struct error *error) MUST_CHECK;
/* Makes the reference of a revision. pull_is_revision must take `revision`. */
enum err pull_store_refer(const struct pull_store *store, const char *revision, const char *commit,
                          struct error *error) MUST_CHECK;
enum err pull_store_snapshot(const struct pull_store *store, const char *commit,
                             char ret_path[PATH_MAX], struct error *error) MUST_CHECK;
