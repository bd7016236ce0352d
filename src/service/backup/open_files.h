/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* open_files: files that batches need which have not ended, held open: their logs and their inputs.
 *
 * A batch that ends takes its log away, and its input may go, too. Open files stay.
 *
 * Thread: one.
 * Memory: open_files_close frees the list. */

#include "backup/object.h"
#include "store/snapshot.h"

struct open_file {
    char path[BACKUP_PATH_BYTES]; /* below the state directory */
    char batch_id[STORE_ID_BYTES];
    int fd;
    bool grows; /* the last segment of its batch */
};

struct open_files {
    const char *state_dir;
    struct open_file *files;
    size_t count;
    size_t capacity;
};

/* Opens the files of all batches that have not ended in the live database. A batch that has not
 * ended in a later copy of it either had all of its log when it was opened. */
enum err open_files_open(struct open_files *held, const char *state_dir, struct snapshot *live,
                         struct error *error) MUST_CHECK;
/* The file of that path, or NULL. */
const struct open_file *open_files_find(const struct open_files *held, const char *path);
void open_files_close(struct open_files *held);
