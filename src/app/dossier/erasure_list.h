/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* erasure_list: the files that an erasure replaces, as the file by which it is committed.
 *
 * For each file NAME a new one lies at NAME.erasing, whole and synced. Once the list has its name,
 * MANIFEST.erasing of the first run, the erasure is done whatever happens: who finds the list gives
 * each new file its name, and removes the list. It is a JSON object,
 *
 *   {"object": "quern.erasing", "files": [{"path", "was": FACTS, "made": FACTS}], "runs": [PATH]}
 *
 * with FACTS = {"bytes", "changed_ns", "inode"} of the old file and the new one, so that neither one
 * which somebody has changed since is overwritten, nor one that was made since takes its place. All
 * paths begin with a slash. Other runs that the erasure changes have a note at their
 * MANIFEST.erasing, one of "runs", which counts while the list is there:
 *
 *   {"object": "quern.erasing", "list": PATH}
 *
 * Thread: one.
 * Memory: the paths; erasure_list_release frees them.
 * Invariant: a list has its name only while all its new files were whole and synced. */

#include "base/err.h"
#include "base/str.h"
#include "proof/file_sum.h"

#define ERASURE_LIST_FILES_MAX 64
#define ERASURE_LIST_RUNS_MAX 8

struct erasure_list_file {
    char *path; /* without links */
    struct file_facts was, made;
};

struct erasure_list {
    struct erasure_list_file files[ERASURE_LIST_FILES_MAX];
    char *runs[ERASURE_LIST_RUNS_MAX]; /* the notes of the other runs */
    char *list;                        /* the list that a note names; else NULL */
    size_t count, run_count;
};

/* The one of the files that has this path; SIZE_MAX if none has. */
size_t erasure_list_find(const struct erasure_list *list, const char *path);
/* Adds a file as it is now, before it is read. ERR_LIMIT: too many; ERR_INVALID: it is no plain
 * file, or has a second name by a hard link, which would keep the text. */
enum err erasure_list_add(struct erasure_list *list, const char *path,
                          struct error *error) MUST_CHECK;
/* Adds the note of another run. */
void erasure_list_add_run(struct erasure_list *list, const char *path);
/* Commits as the list `path`, and gives the files their names. */
enum err erasure_list_commit(struct erasure_list *list, const char *path,
                             struct error *error) MUST_CHECK;
/* Ends an erasure whose list or note is there. *ret_was_one: it had been committed.
 * ERR_CONFLICT: a file was changed since; ERR_CORRUPT: it is no list. */
enum err erasure_list_end(const char *path, bool *ret_was_one, struct error *error) MUST_CHECK;
/* Removes the new files of a list that was not committed. */
void erasure_list_drop(const struct erasure_list *list);
/* Reads the text of a list or note. ERR_CORRUPT: it is none. After OK the caller releases it. */
enum err erasure_list_read(struct erasure_list *ret_list, struct str text,
                           struct error *error) MUST_CHECK;
void erasure_list_release(struct erasure_list *list);
