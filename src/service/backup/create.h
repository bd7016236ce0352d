/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* create: one backup of a state directory, whose server may run.
 *
 * The logs and inputs of unfinished batches are opened first, because a batch that ends takes its
 * log away. Then comes a copy of the database, and then the bytes that its rows promise. So the
 * backup has everything that was durable before it began. A file that the server removes in between
 * loses its row in the copy, too. If something else in the copy needs it, the copy is taken again:
 * the bytes that were copied already are known then.
 *
 * Left out, because nothing rests on it: answers kept for equal requests, spools, the ballast,
 * stacks of engines. docs/internals/service/backup.md has the whole reasoning.
 *
 * Thread: one.
 * Memory: some 160 bytes per file of the state directory, twice. */

#include "backup/folder.h"

struct backup_options {
    const char *state_dir;
    const char *dir;     /* folder of the backups */
    const char *version; /* version of this quern */
    uint64_t keep;       /* generations that stay; 0: all */
    bool move;           /* close the state directory for good: no server may have it open */
    /* Receives one sentence per file whose bytes the disk has lost or changed. */
    void (*report)(void *context, const char *sentence);
    void *context;
};

struct backup_created {
    uint64_t generation;
    uint64_t batches;
    uint64_t unfinished; /* batches */
    uint64_t files;
    uint64_t bytes;        /* bytes in the generation */
    uint64_t copied_bytes; /* that earlier generations did not have */
    uint64_t removed;      /* generations that were over `keep` */
    uint64_t damaged;      /* files that `report` was told of */
    uint64_t attempts;
};

/* OK once the generation is complete and durable. ERR_CONFLICT if a server has the directory open
 * and `move` is asked for, or if another backup into the folder is under way. */
enum err backup_create(const struct backup_options *options, struct backup_created *ret_taken,
                       struct error *error) MUST_CHECK;
