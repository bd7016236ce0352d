/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* check: reads every byte of a backup folder and compares it with the manifests; then the rows of
 * each generation's database with the generation's objects.
 *
 * Thread: one.
 * Memory: two manifests at a time, and 1 MiB. */

#include "backup/folder.h"

/* One generation after its check. */
struct backup_checked {
    const struct backup_manifest *manifest;
    uint64_t damaged; /* sentences that `report` got about it */
};

struct backup_check {
    const char *dir;
    void (*report)(void *context, const char *sentence);
    void (*checked)(void *context, const struct backup_checked *generation);
    void *context;
};

/* Checks all generations, the newest first. *ret_damaged counts the sentences; *ret_unfinished is
 * the number of a generation that was begun and did not end, or 0. ERR_NOT_FOUND if the folder has
 * no complete generation. */
enum err backup_check(const struct backup_check *check, uint64_t *ret_damaged,
                      uint64_t *ret_unfinished, struct error *error) MUST_CHECK;
