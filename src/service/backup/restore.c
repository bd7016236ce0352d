/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/restore.h"

#include "backup/move_mark.h"
#include "backup/object.h"
#include "base/os.h"
#include "keys/key_file.h"
#include "store/snapshot.h"
#include "store/state_marks.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Compares the schema of the database with that of its version, before a byte of it is used. */
static enum err check_database(const struct backup_folder *folder,
                               const struct backup_manifest *manifest, struct error *error) {
    const struct backup_object *database = backup_manifest_find(manifest, "meta.db");
    char file[BACKUP_FILE_BYTES];
    struct snapshot *snapshot;
    enum err err = backup_object_read(folder, database, -1, error);
    if (err != OK) return err;
    backup_object_file(folder, "meta.db", database->generation, file);
    err = snapshot_open(&snapshot, file, error);
    if (err == OK) snapshot_close(snapshot);
    return err;
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

/* --- one restore --- */

struct restoring {
    const struct backup_restore *options;
    struct backup_folder folder;
    struct backup_manifest manifest;
    struct move_mark known; /* mark from an earlier restore */
    char token[MOVE_TOKEN_BYTES];
    char state_dir[BACKUP_DIR_BYTES_MAX];
    bool is_unmarked;
};

/* Refuses a generation whose batches went on elsewhere, and a move that cannot be marked. */
static enum err check_first(const struct restoring *restoring, struct error *error) {
    const struct backup_manifest *manifest = &restoring->manifest;
    if (restoring->options->again) return OK;
    if (restoring->known.generation >= manifest->generation)
        return err_set(error, ERR_CONFLICT,
                       "the batches went on elsewhere and would run twice: generation %" PRIu64
                       " was restored %.250s. If no server was ever started there, add --again",
                       restoring->known.generation, restoring->known.place);
    if (!manifest->is_moved || move_mark_is_possible(&restoring->folder)) return OK;
    return err_set(error, ERR_CONFLICT,
                   "%.250s cannot be written, so that a second restore of this move could not be "
                   "refused: make it writable, or add --again and restore it only once",
                   restoring->folder.dir);
}

/* True if the directory was filled by the restore that made the folder's mark: only `restoring` is
 * left to be removed. */
static bool is_filled(const struct restoring *restoring) {
    char *line;
    struct error ignored;
    if (restoring->known.generation != restoring->manifest.generation ||
        state_mark_read(restoring->state_dir, STATE_RESTORING, &line, &ignored) != OK)
        return false;
    bool is_same = str_ends_with(str_from(line), str_from(restoring->known.token));
    free(line);
    return is_same;
}

/* Says in the folder of a move where it goes on. */
static enum err mark_move(struct restoring *restoring, struct error *error) {
    bool again = restoring->options->again;
    if (!restoring->manifest.is_moved) return OK;
    enum err err = move_mark_write(&restoring->folder, restoring->manifest.generation,
                                   restoring->token, restoring->state_dir, again, error);
    restoring->is_unmarked = err != OK && again;
    return restoring->is_unmarked ? OK : err;
}

/* Fills the directory under its lock and its mark. */
static enum err fill(struct restoring *restoring, struct error *error) {
    const char *state_dir = restoring->state_dir;
    char line[BACKUP_DIR_BYTES_MAX + 128];
    move_token_draw(restoring->token);
    snprintf(line, sizeof line, "restoring %s, generation %" PRIu64 ", as %s\n",
             restoring->folder.dir, restoring->manifest.generation, restoring->token);
    enum err err = state_mark_set(state_dir, STATE_RESTORING, line, error);
    if (err == OK) err = write_all(&restoring->folder, state_dir, &restoring->manifest, error);
    return err == OK ? mark_move(restoring, error) : err;
}

static enum err make_directory(struct restoring *restoring, struct error *error) {
    const char *state_dir = restoring->state_dir;
    bool is_done = is_filled(restoring);
    int lock_fd;
    enum err err = is_done ? OK : check_first(restoring, error);
    if (err == OK && !is_done) err = check_empty(state_dir, error);
    if (err == OK) err = os_mkdirs_durable(state_dir, error);
    if (err == OK && chmod(state_dir, 0700) != 0)
        err = err_from_errno(error, errno, "cannot close %s to others", state_dir);
    if (err == OK) err = state_lock(state_dir, false, &lock_fd, error);
    if (err != OK) return err;
    if (!is_done) err = fill(restoring, error);
    if (err == OK) err = state_mark_clear(state_dir, STATE_RESTORING, error);
    os_close(lock_fd);
    return err == OK ? OK : err_prefix(error, "%s is not restored", state_dir);
}

static enum err take_name(struct restoring *restoring, struct error *error) {
    const char *name = restoring->options->state_dir;
    size_t bytes = strlen(name);
    while (bytes > 1 && name[bytes - 1] == '/') bytes--;
    if (bytes == 0 || bytes >= sizeof restoring->state_dir)
        return err_set(error, ERR_INVALID, "the state directory's name has %zu bytes, not 1 to %zu",
                       bytes, sizeof restoring->state_dir - 1);
    memcpy(restoring->state_dir, name, bytes);
    restoring->state_dir[bytes] = '\0';
    return OK;
}

static enum err run(struct restoring *restoring, struct error *error) {
    uint64_t generation = 0;
    enum err err = choose(restoring->options, &restoring->folder, &generation, error);
    if (err == OK)
        err = backup_folder_load(&restoring->folder, generation, &restoring->manifest, error);
    if (err == OK) err = check_whole(&restoring->folder, &restoring->manifest, error);
    if (err == OK) err = check_database(&restoring->folder, &restoring->manifest, error);
    if (err != OK) return err;
    err = move_mark_read(&restoring->folder, &restoring->known, error);
    /* A mark that cannot be read is still the sign of a restore. */
    if (err != OK && !restoring->options->again) return err;
    return make_directory(restoring, error);
}

enum err backup_restore(const struct backup_restore *restore, struct backup_restored *ret_restored,
                        struct error *error) {
    struct restoring restoring = {.options = restore, .folder = {.lock_fd = -1}};
    const struct backup_folder *folder = &restoring.folder;
    const struct backup_manifest *manifest = &restoring.manifest;
    enum err err = take_name(&restoring, error);
    if (err == OK) err = backup_folder_open(&restoring.folder, restore->dir, BACKUP_READ, error);
    if (err != OK) return err;
    err = run(&restoring, error);
    if (err == OK) {
        bool is_older = manifest->schema < snapshot_schema_known();
        uint64_t later = folder->unfinished > manifest->generation ? folder->unfinished : 0;
        *ret_restored = (struct backup_restored){
            .generation = manifest->generation,
            .begun_unix_s = manifest->begun_unix_s,
            .batches = manifest->batches,
            .unfinished = manifest->unfinished,
            .files = manifest->count,
            .bytes = backup_manifest_bytes(manifest),
            .is_moved = manifest->is_moved,
            .is_unmarked = restoring.is_unmarked,
            .has_keys = backup_manifest_find(manifest, KEY_FILE_NAME) != NULL,
            .migrates = is_older,
            .broken_off = later};
        memcpy(ret_restored->version, manifest->version, sizeof manifest->version);
    }
    backup_manifest_release(&restoring.manifest);
    backup_folder_close(&restoring.folder);
    return err;
}
