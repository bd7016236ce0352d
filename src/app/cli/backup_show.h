/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* backup_show: the words that `quern backup` and `quern restore` share.
 *
 * Thread: main.
 * Memory: the caller's. */

#include <stdint.h>

/* "batch" or "batches" */
const char *backup_show_batches(uint64_t count);
