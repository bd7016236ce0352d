/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/prune.h"

#include "base/mem.h"
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct thinning {
    const struct backup_folder *folder;
    struct backup_manifest *manifests;
    size_t count;
};

/* True if a manifest names the object "<path>.<generation>". */
static bool is_named(const struct thinning *thinning, const char *name) {
    char path[BACKUP_PATH_BYTES];
    uint64_t generation;
    const char *dot = strrchr(name, '.');
    if (!dot || (size_t)(dot - name) >= sizeof path || !str_to_u64(str_from(dot + 1), &generation))
        return false;
    memcpy(path, name, (size_t)(dot - name));
    path[dot - name] = '\0';
    for (size_t i = 0; i < thinning->count; i++) {
        const struct backup_object *object = backup_manifest_find(&thinning->manifests[i], path);
        if (object && object->generation == generation) return true;
    }
    return false;
}

/* Removes what no manifest names below "data/<below>"; depth 0 is data/ itself. */
static enum err sweep(const struct thinning *thinning, const char *below, int depth,
                      struct error *error) {
    char path[BACKUP_FILE_BYTES];
    snprintf(path, sizeof path, "%s/data%s%s", thinning->folder->dir, *below ? "/" : "", below);
    DIR *dir = os_opendir(path);
    if (!dir) return errno == ENOENT ? OK : err_from_errno(error, errno, "cannot read %s", path);
    enum err err = OK;
    for (struct dirent *entry; err == OK && (entry = readdir(dir));) {
        char name[BACKUP_PATH_BYTES + 32], file[BACKUP_FILE_BYTES];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        int bytes = snprintf(name, sizeof name, "%s%s%s", below, *below ? "/" : "", entry->d_name);
        if (bytes < 0 || (size_t)bytes >= sizeof name) continue; /* quern makes no such name */
        if (snprintf(file, sizeof file, "%s/data/%s", thinning->folder->dir, name) >=
            (int)sizeof file)
            continue;
        struct stat status;
        if (lstat(file, &status) != 0) continue;
        if (S_ISDIR(status.st_mode)) {
            /* files/ab is the deepest folder. rmdir leaves one that still has objects. */
            if (depth < 2) err = sweep(thinning, name, depth + 1, error);
            if (err == OK && rmdir(file) != 0 && errno != ENOTEMPTY && errno != EEXIST)
                err = err_from_errno(error, errno, "cannot remove %s", file);
        } else if (!is_named(thinning, name)) {
            err = os_unlink(file, error);
        }
    }
    closedir(dir);
    return err;
}

static enum err remove_manifests(struct backup_folder *folder, uint64_t keep, uint64_t *ret_removed,
                                 struct error *error) {
    enum err err = OK;
    size_t over = keep && folder->count > keep ? folder->count - (size_t)keep : 0;
    for (size_t i = 0; i < over && err == OK; i++) {
        char file[BACKUP_FILE_BYTES];
        backup_manifest_file(folder, folder->generations[i], file);
        err = os_unlink(file, error);
        if (err == OK && i + 1 == over) err = os_fsync_parent(file, error);
    }
    if (err != OK) return err;
    memmove(folder->generations, folder->generations + over,
            (folder->count - over) * sizeof *folder->generations);
    folder->count -= over;
    *ret_removed = over;
    return OK;
}

enum err backup_prune(struct backup_folder *folder, uint64_t keep, uint64_t *ret_removed,
                      struct error *error) {
    struct thinning thinning = {.folder = folder};
    *ret_removed = 0;
    enum err err = remove_manifests(folder, keep, ret_removed, error);
    if (err != OK) return err;
    thinning.manifests = mem_new(folder->count + 1, sizeof *thinning.manifests);
    for (size_t i = 0; i < folder->count && err == OK; i++) {
        err = backup_folder_load(folder, folder->generations[i], &thinning.manifests[i], error);
        if (err == OK) thinning.count++;
    }
    if (err == OK) err = sweep(&thinning, "", 0, error);
    for (size_t i = 0; i < thinning.count; i++) backup_manifest_release(&thinning.manifests[i]);
    free(thinning.manifests);
    return err == ERR_CORRUPT || err == ERR_CONFLICT ? OK : err;
}
