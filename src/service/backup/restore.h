/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* restore: makes a state directory of one generation of a backup.
 *
 * Every byte is compared with its sum on the way. Until the end the directory has a mark that no
 * server starts over (store/state_marks.h), and its database comes last, so that a restore that was
 * killed is never taken for a state directory.
 *
 * A moved generation is restored once: its mark (move_mark.h) is written before the directory can
 * start, and refuses a second restore of it, or of an earlier generation.
 *
 * Thread: one.
 * Memory: one manifest, and 1 MiB. */

#include "backup/folder.h"

struct backup_restore {
    const char *dir;       /* folder of the backups */
    const char *state_dir; /* new, or empty */
    uint64_t generation;   /* 0: the newest complete one */
    bool again; /* restores a move that was restored before, or that cannot be marked, too */
};

struct backup_restored {
    uint64_t generation;
    int64_t begun_unix_s;
    uint64_t batches;
    uint64_t unfinished; /* batches that the next start goes on with */
    uint64_t files;
    uint64_t bytes;
    bool is_moved;
    bool is_unmarked; /* a move whose folder cannot be written: no later restore is refused */
    bool has_keys;
    bool migrates;       /* the next start brings the database to this quern's version */
    uint64_t broken_off; /* number of a later generation that did not end; 0: none */
    char version[32];    /* version of the quern that made the backup */
};

/* ERR_CONFLICT if the state directory is not empty, if the backup is a newer quern's, or, without
 * `again`, if the move was restored before or cannot be marked as restored.
 * ERR_NOT_FOUND without a complete generation. ERR_CORRUPT if bytes are missing or changed. */
enum err backup_restore(const struct backup_restore *restore, struct backup_restored *ret_restored,
                        struct error *error) MUST_CHECK;
