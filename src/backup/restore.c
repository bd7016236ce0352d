/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/restore.h"

#include "backup/object.h"
#include "base/os.h"
#include "http/key_file.h"
#include "store/snapshot.h"
#include "store/state_marks.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Refuses a directory that has anything in it but what a file system puts there. */
static enum err check_empty(const char *state_dir, struct error *error) {
    char name[256] = "";
    DIR *dir = os_opendir(state_dir);
    if (!dir && errno == ENOENT) return OK;
    if (!dir) return err_from_errno(error, errno, "cannot read %s", state_dir);
    for (struct dirent *entry; !*name && (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, "lost+found") != 0)
            snprintf(name, sizeof name, "%s", entry->d_name);
    closedir(dir);
    if (!*name) return OK;
    return err_set(error, ERR_CONFLICT,
                   "%s is not empty (it has '%s'): move it away, or name another --state-dir",
                   state_dir, name);
}

static enum err choose(const struct backup_restore *restore, const struct backup_folder *folder,
                       uint64_t *ret_generation, struct error *error) {
    if (folder->count == 0)
        return err_set(error, ERR_NOT_FOUND, "%s has no complete backup%s", folder->dir,
                       folder->unfinished ? ": one was begun and did not end" : "");
    *ret_generation = folder->generations[folder->count - 1];
    if (!restore->generation) return OK;
    for (size_t i = 0; i < folder->count; i++)
        if (folder->generations[i] == restore->generation) {
            *ret_generation = restore->generation;
            return OK;
        }
    return err_set(error, ERR_NOT_FOUND,
                   "%s has no generation %" PRIu64 ": its newest is %" PRIu64
                   ", its oldest %" PRIu64,
                   folder->dir, restore->generation, *ret_generation, folder->generations[0]);
}

/* Refuses what cannot be restored before anything is written. */
static enum err check_whole(const struct backup_folder *folder,
                            const struct backup_manifest *manifest, struct error *error) {
    if (manifest->schema > snapshot_schema_known())
        return err_set(
            error, ERR_CONFLICT,
            "generation %" PRIu64 " was made by quern %s, whose database has version %" PRId64
            "; this quern knows versions up to %" PRId64 ": restore it with a quern as new as that",
            manifest->generation, manifest->version, manifest->schema, snapshot_schema_known());
    if (!backup_manifest_find(manifest, "meta.db"))
        return err_set(error, ERR_CORRUPT, "generation %" PRIu64 " has no meta.db",
                       manifest->generation);
    for (size_t i = 0; i < manifest->count; i++) {
        const struct backup_object *object = &manifest->objects[i];
        if (backup_object_is_there(folder, object)) continue;
        return err_set(error, ERR_CORRUPT,
                       "generation %" PRIu64 " is damaged: data/%s.%" PRIu64
                       " is missing or too short",
                       manifest->generation, object->path, object->generation);
    }
    return OK;
}

static enum err write_one(const struct backup_folder *folder, const char *state_dir,
                          const struct backup_object *object, struct error *error) {
    char file[BACKUP_FILE_BYTES];
    int fd;
    int bytes = snprintf(file, sizeof file, "%s/%s", state_dir, object->path);
    if (bytes < 0 || (size_t)bytes >= sizeof file)
        return err_set(error, ERR_INVALID, "the state directory's name is too long");
    struct str path = str_from(object->path);
    bool is_immutable =
        str_starts_with(path, STR("files/")) || str_starts_with(path, STR("parts/"));
    enum err err = backup_make_parents(state_dir, file, error);
    if (err == OK) err = os_create(&fd, file, is_immutable ? 0400 : 0600, error);
    if (err != OK) return err;
    err = backup_object_read(folder, object, fd, error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    return err == OK ? os_fsync_parent(file, error) : err;
}

static enum err write_all(const struct backup_folder *folder, const char *state_dir,
                          const struct backup_manifest *manifest, struct error *error) {
    const struct backup_object *database = backup_manifest_find(manifest, "meta.db");
    enum err err = OK;
    for (size_t i = 0; i < manifest->count && err == OK; i++)
        if (&manifest->objects[i] != database)
            err = write_one(folder, state_dir, &manifest->objects[i], error);
    return err == OK ? write_one(folder, state_dir, database, error) : err;
}

/* Fills the directory under its lock and its mark. */
static enum err fill(const struct backup_folder *folder, const char *state_dir,
                     const struct backup_manifest *manifest, struct error *error) {
    char line[BACKUP_DIR_BYTES_MAX + 64];
    int lock_fd;
    snprintf(line, sizeof line, "restoring %s, generation %" PRIu64 "\n", folder->dir,
             manifest->generation);
    enum err err = os_mkdirs(state_dir, error);
    if (err == OK && chmod(state_dir, 0700) != 0)
        err = err_from_errno(error, errno, "cannot close %s to others", state_dir);
    if (err == OK) err = state_lock(state_dir, false, &lock_fd, error);
    if (err != OK) return err;
    err = state_mark_set(state_dir, STATE_RESTORING, line, error);
    if (err == OK) err = write_all(folder, state_dir, manifest, error);
    if (err == OK) err = state_mark_clear(state_dir, STATE_RESTORING, error);
    os_close(lock_fd);
    return err == OK ? OK : err_prefix(error, "%s is not restored", state_dir);
}

enum err backup_restore(const struct backup_restore *restore, struct backup_restored *ret_restored,
                        struct error *error) {
    struct backup_folder folder;
    struct backup_manifest manifest = {0};
    char state_dir[BACKUP_DIR_BYTES_MAX];
    uint64_t generation = 0;
    size_t bytes = strlen(restore->state_dir);
    while (bytes > 1 && restore->state_dir[bytes - 1] == '/') bytes--;
    if (bytes == 0 || bytes >= sizeof state_dir)
        return err_set(error, ERR_INVALID, "the state directory's name has %zu bytes, not 1 to %zu",
                       bytes, sizeof state_dir - 1);
    memcpy(state_dir, restore->state_dir, bytes);
    state_dir[bytes] = '\0';
    enum err err = backup_folder_open(&folder, restore->dir, BACKUP_READ, error);
    if (err != OK) return err;
    err = choose(restore, &folder, &generation, error);
    if (err == OK) err = backup_folder_load(&folder, generation, &manifest, error);
    if (err == OK) err = check_whole(&folder, &manifest, error);
    if (err == OK) err = check_empty(state_dir, error);
    if (err == OK) err = fill(&folder, state_dir, &manifest, error);
    if (err == OK) {
        *ret_restored = (struct backup_restored){
            .generation = generation,
            .begun_unix_s = manifest.begun_unix_s,
            .batches = manifest.batches,
            .unfinished = manifest.unfinished,
            .files = manifest.count,
            .bytes = backup_manifest_bytes(&manifest),
            .is_moved = manifest.is_moved,
            .has_keys = backup_manifest_find(&manifest, KEY_FILE_NAME) != NULL,
            .migrates =
                manifest.schema<snapshot_schema_known(), .broken_off = folder.unfinished> generation
                    ? folder.unfinished
                    : 0};
        memcpy(ret_restored->version, manifest.version, sizeof manifest.version);
    }
    backup_manifest_release(&manifest);
    backup_folder_close(&folder);
    return err;
}
