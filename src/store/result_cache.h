/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* result_cache: answers by the key of their request, on disk, up to a number of bytes; the oldest
 * go first. A cache: nothing in it is needed, nothing is synced, and what cannot be read or written
 * is a miss. An answer comes back only when its record has the whole key and the right checksum.
 *
 *   cache/00000001.seg …   records, appended; a file is 16 MiB and is removed as a whole
 *
 * Knows no request and no JSON; what a key stands for is batch/request_key.h.
 *
 * Thread: any, one at a time inside.  Memory: 16 bytes for each KiB it may hold, taken at once.
 * Invariant: a body that comes back is the one that was put under this key. */

#include "base/buf.h"
#include "store/batches.h"

#define RESULT_CACHE_KEY_BYTES 32
#define RESULT_CACHE_BYTES_DEFAULT ((uint64_t)256 << 20)

struct result_cache;

struct result_cache_counts {
    uint64_t hits, misses;
    uint64_t bytes; /* on disk */
};

/* `bytes_max` is at least two files' worth, whatever is asked. */
enum err result_cache_open(struct result_cache **ret_cache, const char *state_dir,
                           uint64_t bytes_max, struct error *error) MUST_CHECK;
void result_cache_close(struct result_cache *cache); /* NULL is allowed */

/* Keeps a copy of the body (at most 1 MiB; a larger one is left out). */
void result_cache_put(struct result_cache *cache, const unsigned char key[RESULT_CACHE_KEY_BYTES],
                      struct str body, const struct usage *usage);
/* Appends the body; false when there is none. */
bool result_cache_get(struct result_cache *cache, const unsigned char key[RESULT_CACHE_KEY_BYTES],
                      struct buf *ret_body, struct usage *ret_usage);
struct result_cache_counts result_cache_counts(struct result_cache *cache);
