/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_store: one repository of the Hugging Face cache, to write to:
 *
 *     ROOT/models--ORG--NAME/blobs/DIGEST                  the files, by their sums
 *     ROOT/models--ORG--NAME/snapshots/COMMIT/PATH         links to them
 *     ROOT/models--ORG--NAME/refs/REVISION                 the commit a name stands for
 *     ROOT/.locks/models--ORG--NAME/DIGEST.lock            flock: who fetches a file
 *
 * the layout of the "Hub Local Cache" reference, so that Hugging Face's tools find what quern
 * fetches, wait while it does, and the other way round. A blob appears whole, by rename; a link
 * after its blob, the reference after all links. Made with the modes that the umask leaves, as the
 * other tools make theirs.
 *
 * Thread: main.  Memory: the caller's struct. */

#include "base/err.h"
#include "hub/pull_plan.h"

#include <limits.h>

struct pull_store {
    char root[PATH_MAX]; /* real */
    char folder[PATH_MAX];
    char locks[PATH_MAX];
};

/* Makes the folders. `repository` is one that pull_is_repository takes. */
enum err pull_store_open(struct pull_store *ret_store, const char *cache, const char *repository,
                         struct error *error) MUST_CHECK;
/* Tries to become the one that fetches a file: *ret_fd is -1 when another has it, and closing it
 * gives it back. Where the file system has no locks everybody gets one. */
enum err pull_store_lock(const struct pull_store *store, const char *digest, int *ret_fd,
                         struct error *error) MUST_CHECK;
enum err pull_store_blob_path(const struct pull_store *store, const char *digest,
                              char ret_path[PATH_MAX], struct error *error) MUST_CHECK;
/* Whether the file is there with that size. */
bool pull_store_has(const struct pull_store *store, const char *digest, uint64_t bytes);
/* Makes the link of one file of a snapshot, and what is above it. */
enum err pull_store_link(const struct pull_store *store, const char *commit, const char *path,
                         const char *digest, struct error *error) MUST_CHECK;
/* `revision` is one that pull_is_revision takes. */
enum err pull_store_refer(const struct pull_store *store, const char *revision, const char *commit,
                          struct error *error) MUST_CHECK;
enum err pull_store_snapshot(const struct pull_store *store, const char *commit,
                             char ret_path[PATH_MAX], struct error *error) MUST_CHECK;
