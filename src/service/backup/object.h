/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* object: one file of the state directory on its way into a backup folder, and out of it.
 *
 * A file that is known from an earlier generation costs as little as can be: nothing if inode, size
 * and times are those of then; a read if the bytes are; and only its new bytes if it grew.
 *
 * Thread: one.
 * Memory: 1 MiB per call. */

#include "backup/folder.h"

/* A file of the state directory, open for reading. */
struct backup_source {
    int fd;
    const char *path; /* below the state directory */
    uint64_t bytes;   /* how many of its first bytes are taken */
    uint64_t stamp;   /* backup_stamp, from before the bytes were counted */
};

/* Writes the path of a file, or of a part of an upload, below the state directory. */
void backup_file_path(const char *id, bool is_part, char ret_path[BACKUP_PATH_BYTES]);
/* Opens a file of the state directory for reading; ERR_NOT_FOUND if it does not exist. */
enum err backup_state_open(const char *state_dir, const char *path, int *ret_fd,
                           struct error *error) MUST_CHECK;

/* A mark of inode, size and times of an open file; 0 if it changed within the last 2 s, so that a
 * later change could have the same times. */
uint64_t backup_stamp(int fd);

/* Takes the file into the folder. `known`: the object of its path in an earlier generation, or
 * NULL. *ret_object says where the bytes are; *copied grows by the bytes written. */
enum err backup_object_take(const struct backup_folder *folder, const struct backup_source *source,
                            const struct backup_object *known, uint64_t generation,
                            struct backup_object *ret_object, uint64_t *copied,
                            struct error *error) MUST_CHECK;
/* True if the object's file exists with at least its bytes. */
bool backup_object_is_there(const struct backup_folder *folder, const struct backup_object *object);
/* Reads the object's bytes and compares their sum; writes them to `to_fd` unless it is -1.
 * ERR_CORRUPT if they are other bytes, ERR_NOT_FOUND if the object is gone. */
enum err backup_object_read(const struct backup_folder *folder, const struct backup_object *object,
                            int to_fd, struct error *error) MUST_CHECK;
