/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* damaged: the files whose bytes were found to be other ones than those that were stored.
 *
 * That shows only at the end of a transfer, which then breaks off. A client comes again, perhaps
 * for the rest only, and is told from then on; a start forgets it.
 *
 * Thread: any; a lock of its own.
 * Memory: the sums of DAMAGED_MAX files, the latest ones. */

#include "base/hash.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define DAMAGED_MAX 64

struct damaged {
    pthread_mutex_t lock;
    char sums[DAMAGED_MAX][SHA256_HEX_BYTES];
    size_t next;
};

void damaged_init(struct damaged *damaged);
void damaged_release(struct damaged *damaged);
/* Notes and logs it; `sha256_hex` is the sum that the file should have. */
void damaged_add(struct damaged *damaged, const char *sha256_hex);
bool damaged_has(struct damaged *damaged, const char *sha256_hex);
