/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* folder: the directory that backups of one state directory go to, one generation after another.
 *
 *   LOCK                      locked: exclusively while a backup is taken, shared while one is read
 *   manifests/00000007        one per complete generation (manifest.h)
 *   manifests/00000007.restored   where a moved generation was restored (move_mark.h)
 *   data/<path>.<generation>  objects: the bytes of a file of the state directory, from the
 *                             generation on in which it came or changed
 *   unfinished                number of a generation that was begun and has not ended
 *
 * Generations share objects. A segment only grows, so its object grows with it: each manifest says
 * how many of its first bytes are the segment of that generation. Bytes that a manifest counts are
 * never written again. Objects that no manifest names are garbage.
 *
 * Thread: one.
 * Memory: the caller's struct; backup_folder_close closes it. */

#include "backup/manifest.h"

#define BACKUP_DIR_BYTES_MAX 2048
#define BACKUP_FILE_BYTES (BACKUP_DIR_BYTES_MAX + 160)

struct backup_folder {
    char dir[BACKUP_DIR_BYTES_MAX];
    int lock_fd;
    uint64_t *generations; /* complete ones, ascending */
    size_t count;
    uint64_t unfinished; /* 0: the last backup ended */
    uint64_t restored;   /* latest generation with a mark of move_mark.h; 0: none */
};

enum backup_folder_use { BACKUP_READ, BACKUP_WRITE };

/* Opens and locks the folder. BACKUP_WRITE makes it in an empty or new directory. ERR_NOT_FOUND if
 * it is no backup folder, ERR_CONFLICT if another process uses it, or if it holds something
 * else. */
enum err backup_folder_open(struct backup_folder *ret_folder, const char *dir,
                            enum backup_folder_use use, struct error *error) MUST_CHECK;
void backup_folder_close(struct backup_folder *folder);

/* Writes "<dir>/data/<path>.<generation>". */
void backup_object_file(const struct backup_folder *folder, const char *path, uint64_t generation,
                        char ret_file[BACKUP_FILE_BYTES]);
/* Writes "<dir>/manifests/<generation>". */
void backup_manifest_file(const struct backup_folder *folder, uint64_t generation,
                          char ret_file[BACKUP_FILE_BYTES]);
/* Writes "<dir>/manifests/<generation>.restored". */
void backup_move_file(const struct backup_folder *folder, uint64_t generation,
                      char ret_file[BACKUP_FILE_BYTES]);
/* Makes the directories of a file below a directory, and their names durable; also of those that
 * exist, because a process that was killed may have made them. `file` begins with `dir`. */
enum err backup_make_parents(const char *dir, const char *file, struct error *error) MUST_CHECK;

/* Reads the manifest of a generation; ERR_CORRUPT if it is not valid, or another generation's. */
enum err backup_folder_load(const struct backup_folder *folder, uint64_t generation,
                            struct backup_manifest *ret_manifest, struct error *error) MUST_CHECK;
/* Says durably that a generation begins. */
enum err backup_folder_begin(struct backup_folder *folder, uint64_t generation,
                             struct error *error) MUST_CHECK;
/* Makes the generation complete: its manifest appears, at once and durably. */
enum err backup_folder_commit(struct backup_folder *folder, const struct backup_manifest *manifest,
                              struct error *error) MUST_CHECK;
