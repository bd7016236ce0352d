/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* backup_show: the words that `quern backup` and `quern restore` share.
 *
 * Thread: main.
 * Memory: the caller's. */

#include <stdint.h>

#define BACKUP_TIME_BYTES 32

/* "2026-11-23 03:40:05 UTC" */
void backup_show_time(int64_t unix_s, char ret_text[BACKUP_TIME_BYTES]);
/* "batch" or "batches" */
const char *backup_show_batches(uint64_t count);
