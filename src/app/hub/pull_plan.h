/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pull_plan: what a hub says about a repository: its files and its commit.
 *
 * Every byte is foreign. A list is refused whole if it names a file that is no plain path below a
 * folder, or a malformed sum: an honest hub has no such list. Knows no network and no disk.
 *
 * Thread: any.
 * Memory: a listing owns its table and its texts; pull_listing_release frees both.
 * Invariant: every path of a listing is relative, has no part "." or "..", no control characters
 * and no backslash; every digest is 40 or 64 hex digits. */

#include "base/arena.h"
#include "base/err.h"

#define PULL_FILES_MAX 50000
#define PULL_PATH_BYTES_MAX 512
#define PULL_DEPTH_MAX 8
#define PULL_FILE_BYTES_MAX ((uint64_t)1 << 42)
#define PULL_COMMIT_BYTES 41 /* with the final NUL */
#define PULL_DIGEST_BYTES 65
#define PULL_URL_BYTES 8192

struct pull_file {
    const char *path;
    uint64_t bytes;
    /* The SHA-256 of a file in LFS (64 digits), else git's SHA-1 of the blob (40). The file has
     * this name in the cache. */
    char digest[PULL_DIGEST_BYTES];
    bool is_wanted;
};

struct pull_listing {
    struct pull_file *files;
    size_t count, room;
    struct arena texts;
};

void pull_listing_init(struct pull_listing *listing);
void pull_listing_release(struct pull_listing *listing);
/* Adds one page of /api/models/REPO/tree/COMMIT. ERR_INVALID: the text is no such page. */
enum err pull_listing_read(struct pull_listing *listing, struct str page,
                           struct error *error) MUST_CHECK;
/* Reads the commit in an answer to /api/models/REPO/revision/REVISION. */
enum err pull_commit_read(struct str page, char ret_commit[PULL_COMMIT_BYTES],
                          struct error *error) MUST_CHECK;
/* The URL of rel="next" in the value of a Link header; false if it has none. */
bool pull_next_read(struct str header, char ret_url[PULL_URL_BYTES]);
/* Whether a name is NAME or ORG/NAME, each as catalog_is_part takes it, and without "--". */
bool pull_is_repository(struct str name);
/* Whether a name is that of a branch, a tag or a commit: parts that catalog_is_part takes, between
 * '/'; at most 200 bytes. */
bool pull_is_revision(struct str name);
