/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tree: makes, removes and copies whole directories for tests, without a shell. Aborts on any
 * failure. */

#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline FTS *tree_walk(const char *path) {
    char root[4096];
    if (snprintf(root, sizeof root, "%s", path) >= (int)sizeof root) abort();
    FTS *walk = fts_open((char *[]){root, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (!walk) abort();
    return walk;
}

/* Removes `path` and everything below; a path that is not there is fine. */
static inline void tree_remove(const char *path) {
    if (access(path, F_OK) != 0) return;
    FTS *walk = tree_walk(path);
    for (FTSENT *entry; (entry = fts_read(walk));) {
        if (entry->fts_info == FTS_D) continue;
        if (remove(entry->fts_accpath) != 0) abort();
    }
    fts_close(walk);
}

/* Writes the text to the file `root``name`, whose name begins with a slash, and makes the folders
 * that it needs below `root`. */
static inline void tree_write(const char *root, const char *name, const char *text) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s", root, name) >= (int)sizeof path) abort();
    for (char *slash = path + strlen(root); (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        if (mkdir(path, 0700) != 0 && access(path, F_OK) != 0) abort();
        *slash = '/';
    }
    FILE *file = fopen(path, "we");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0) abort();
}

static inline void tree_copy_file(const char *from, const char *to) {
    char block[1 << 14];
    ssize_t length;
    int source = open(from, O_RDONLY | O_CLOEXEC);
    int copy = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (source < 0 || copy < 0) abort();
    while ((length = read(source, block, sizeof block)) > 0)
        if (write(copy, block, (size_t)length) != length) abort();
    if (length < 0) abort();
    close(source);
    close(copy);
}

/* Copies the directory `from`, of directories and plain files, to the new directory `to`. */
static inline void tree_copy(const char *from, const char *to) {
    size_t prefix = strlen(from);
    FTS *walk = tree_walk(from);
    for (FTSENT *entry; (entry = fts_read(walk));) {
        char target[4096];
        if (snprintf(target, sizeof target, "%s%s", to, entry->fts_path + prefix) >=
            (int)sizeof target)
            abort();
        if (entry->fts_info == FTS_D) {
            if (mkdir(target, 0700) != 0) abort();
        } else if (entry->fts_info == FTS_F) {
            tree_copy_file(entry->fts_path, target);
        } else if (entry->fts_info != FTS_DP) {
            abort();
        }
    }
    fts_close(walk);
}
