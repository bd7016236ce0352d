/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* move_mark: the file in a folder of backups that says where a moved generation was restored.
 *
 *   manifests/00000007.restored   "TOKEN 2026-11-23 13:05:11 UTC on host H into DIR", and LF
 *
 * TOKEN is 32 hex digits, drawn by the restore. The state directory that it fills has the token in
 * its mark `restoring` (store/state_marks.h), with which no server starts. The restore writes the
 * move's mark when all bytes are durable, and removes `restoring` after that. So a directory that
 * can start has its mark in the folder, and of two restores at once one meets the other's mark.
 * A restore that was killed in between finds its own token again, and does the rest.
 *
 * A mark holds for its generation and all earlier ones, whose batches went on from there. It stays
 * when its generation is removed. It knows nothing of copies of the folder.
 *
 * Thread: one.
 * Memory: the caller's struct.
 * Invariant: a mark is durable before its state directory can start. */

#include "backup/folder.h"

#define MOVE_TOKEN_BYTES 33 /* with its NUL */

struct move_mark {
    uint64_t generation; /* 0: no mark */
    char token[MOVE_TOKEN_BYTES];
    char place[512]; /* "2026-11-23 13:05:11 UTC on host H into DIR", cut if it is longer */
};

/* Draws a token. */
void move_token_draw(char ret_token[MOVE_TOKEN_BYTES]);
/* Reads the mark of the latest marked generation. ERR_CORRUPT if the file holds no mark. */
enum err move_mark_read(const struct backup_folder *folder, struct move_mark *ret_mark,
                        struct error *error) MUST_CHECK;
/* Marks a generation as restored into `state_dir` on this host, durably. ERR_CONFLICT if another
 * restore has marked it and `may_replace` is false. */
enum err move_mark_write(const struct backup_folder *folder, uint64_t generation,
                         const char token[MOVE_TOKEN_BYTES], const char *state_dir,
                         bool may_replace, struct error *error) MUST_CHECK;
/* False if this process cannot write the folder's marks. */
bool move_mark_is_possible(const struct backup_folder *folder);
