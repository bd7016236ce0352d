/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/check.h"

#include "backup/object.h"
#include "store/snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct checking {
    const struct backup_check *check;
    struct backup_folder folder;
    const struct backup_manifest *manifest;
    uint64_t damaged;
};

PRINTF_LIKE(2, 3)
static void damaged(struct checking *checking, const char *format, ...) {
    char text[ERROR_TEXT_BYTES], sentence[ERROR_TEXT_BYTES + 40];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    checking->damaged++;
    snprintf(sentence, sizeof sentence, "generation %" PRIu64 ": %s",
             checking->manifest->generation, text);
    checking->check->report(checking->check->context, sentence);
}

/* Compares one row with the generation's object. */
static enum err check_row(void *context, const struct snapshot_file *file, struct error *error) {
    struct checking *checking = context;
    char path[BACKUP_PATH_BYTES];
    (void)error;
    backup_file_path(file->id, file->is_part, path);
    const struct backup_object *object = backup_manifest_find(checking->manifest, path);
    if (!object)
        damaged(checking, "%s: the database names it, and the backup does not have it", path);
    else if (object->bytes != file->bytes ||
             memcmp(object->sha256, file->sha256, SHA256_BYTES) != 0)
        damaged(checking, "%s: its bytes are not those that the database names", path);
    return OK;
}

static void check_rows(struct checking *checking) {
    char file[BACKUP_FILE_BYTES];
    struct snapshot *snapshot;
    struct error error;
    const struct backup_object *database = backup_manifest_find(checking->manifest, "meta.db");
    if (!database) {
        damaged(checking, "it has no meta.db");
        return;
    }
    if (checking->manifest->schema > snapshot_schema_known()) return; /* a newer quern's rows */
    backup_object_file(&checking->folder, "meta.db", database->generation, file);
    enum err err = snapshot_open(&snapshot, file, &error);
    if (err == OK) {
        err = snapshot_check(snapshot, &error);
        if (err == OK) err = snapshot_each_file(snapshot, check_row, checking, &error);
        snapshot_close(snapshot);
    }
    if (err != OK) damaged(checking, "%s", error.text);
}

/* True if the newer generation has the very same object, which was read for it. */
static bool was_read(const struct backup_manifest *newer, const struct backup_object *object) {
    const struct backup_object *other = backup_manifest_find(newer, object->path);
    return other && other->generation == object->generation && other->bytes == object->bytes &&
           memcmp(other->sha256, object->sha256, SHA256_BYTES) == 0;
}

static void check_generation(struct checking *checking, const struct backup_manifest *newer) {
    const struct backup_manifest *manifest = checking->manifest;
    uint64_t before = checking->damaged;
    for (size_t i = 0; i < manifest->count; i++) {
        struct error error;
        if (was_read(newer, &manifest->objects[i])) continue;
        if (backup_object_read(&checking->folder, &manifest->objects[i], -1, &error) != OK)
            damaged(checking, "%s", error.text);
    }
    check_rows(checking);
    struct backup_checked checked = {manifest, checking->damaged - before};
    checking->check->checked(checking->check->context, &checked);
}

enum err backup_check(const struct backup_check *check, uint64_t *ret_damaged,
                      uint64_t *ret_unfinished, struct error *error) {
    struct checking checking = {.check = check};
    struct backup_manifest newer = {0};
    enum err err = backup_folder_open(&checking.folder, check->dir, BACKUP_READ, error);
    if (err != OK) return err;
    size_t count = checking.folder.count;
    *ret_unfinished = checking.folder.unfinished;
    if (count == 0)
        err = err_set(error, ERR_NOT_FOUND, "%s has no complete backup%s", check->dir,
                      *ret_unfinished ? ": one was begun and did not end" : "");
    for (size_t i = count; i-- > 0;) {
        struct backup_manifest manifest = {.generation = checking.folder.generations[i]};
        struct error reason;
        checking.manifest = &manifest;
        if (backup_folder_load(&checking.folder, manifest.generation, &manifest, &reason) == OK)
            check_generation(&checking, &newer);
        else
            damaged(&checking, "%s", reason.text);
        backup_manifest_release(&newer);
        newer = manifest;
    }
    backup_manifest_release(&newer);
    backup_folder_close(&checking.folder);
    if (err == OK) *ret_damaged = checking.damaged;
    return err;
}
