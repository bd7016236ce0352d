/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* erasure_list: the files that an erasure replaces, as the file by which it is committed.
 *
 * For each file NAME a new one lies at NAME.erasing, whole and synced. Once the list has its name,
 * MANIFEST.erasing, the erasure is done whatever happens: who finds the list gives each new file
 * its name, and removes the list. It is a JSON object,
 *
 *   {"object": "quern.erasing", "files": [{"path", "bytes", "changed_ns", "inode"}]}
 *
 * with what the old file was, so that one which somebody has changed since is not overwritten.
 *
 * Thread: one.
 * Memory: the caller's struct.
 * Invariant: a list has its name only while all its new files were whole and synced. */

#include "base/err.h"
#include "proof/file_sum.h"

#include <limits.h>

#define ERASURE_LIST_FILES_MAX 24

struct erasure_list {
    char paths[ERASURE_LIST_FILES_MAX][PATH_MAX]; /* without links */
    struct file_facts facts[ERASURE_LIST_FILES_MAX];
    size_t count;
};

/* Adds a file as it is now, before it is read. ERR_LIMIT: too many; ERR_INVALID: it is no plain
 * file, or has a second name by a hard link, which would keep the text. */
enum err erasure_list_add(struct erasure_list *list, const char *path,
                          struct error *error) MUST_CHECK;
/* Commits, and gives the files their names. */
enum err erasure_list_commit(const struct erasure_list *list, const char *path,
                             struct error *error) MUST_CHECK;
/* Ends an erasure whose list is there. ERR_CONFLICT: a file was changed since; ERR_CORRUPT: it is
 * no list. */
enum err erasure_list_end(const char *path, struct error *error) MUST_CHECK;
/* Removes the new files of a list that was not committed. */
void erasure_list_drop(const struct erasure_list *list);
