/* SPDX-License-Identifier: Apache-2.0 */
#include "node/folder.h"

#include "base/os.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TREE_DEPTH_MAX 8

/* `kept`: an entry of the first level that stays, with the folder. */
static void remove_tree(const char *path, int depth, const char *kept) {
    DIR *folder = depth < TREE_DEPTH_MAX ? os_opendir(path) : NULL;
    struct dirent *entry;
    char inside[PATH_MAX];
    while (folder && (entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name) >= (int)sizeof inside)
            continue;
        if (depth == 0 && strcmp(entry->d_name, kept) == 0) continue;
        if (unlink(inside) != 0) remove_tree(inside, depth + 1, "");
    }
    if (folder) closedir(folder);
    rmdir(path);
}

void folder_remove(const char *path) {
    remove_tree(path, 0, "");
}

void folder_remove_but(const char *path, const char *last) {
    char file[PATH_MAX];
    remove_tree(path, 0, last);
    if (snprintf(file, sizeof file, "%s/%s", path, last) >= (int)sizeof file) return;
    unlink(file);
    rmdir(path);
}
