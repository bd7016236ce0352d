/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tiled_folder: a folder for files of tiled weights, made and looked at by tests. */

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void make_folder(char path[64]) {
    snprintf(path, 64, "/tmp/quern-test-packed-XXXXXX");
    if (!mkdtemp(path)) abort();
}

/* How many files; with `remove` also removes them, and the folder. */
static inline int count_files(const char *folder, bool remove) {
    int count = 0;
    char path[512];
    DIR *open = opendir(folder);
    if (!open) abort();
    for (const struct dirent *entry; (entry = readdir(open));) {
        if (*entry->d_name == '.') continue;
        count++;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (remove) unlink(path);
    }
    closedir(open);
    if (remove) rmdir(folder);
    return count;
}
