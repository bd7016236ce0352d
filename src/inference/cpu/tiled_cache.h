/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tiled_cache: the tiled weights of one model, kept in a folder from one load to the next.
 *
 * Sections of the folder's file (tiled.h) are used where they lie, mapped. When the file lacks any
 * section that the model needs, a thread writes all of them anew while the model runs. A damaged or
 * unreadable file counts as missing; the only cost is laying the tiles out again. Users know the
 * folder by --packed-cache-dir.
 *
 * The key follows from the files' sizes and times, the tensors' names, types and shapes, the
 * kernels' table and the version of the tiling. So another model, CPU or release never gets the
 * wrong bytes.
 *
 * Thread: one, and one of its own that writes.
 * Memory: owns the mapping; sections from tiled_cache_find live until tiled_cache_close. */

#include "cpu/tiled.h"
#include "kernels/pool.h"

/* All zero, or a NULL dir, means no cache. */
struct tiled_cache_options {
    const char *dir;        /* an existing folder that may be written to */
    uint64_t bytes_max;     /* largest file to write; 0: write none, use an existing one */
    const char *model_path; /* the file, or the folder, that the model is read from */
    struct tiled_key stamp; /* tiled_cache_stamp of model_path, taken before it was opened */
};

/* Hashes the identities and times of the model's file, or of all files of its folder. It does not
 * read them, because they are as large as the model. ERR_IO. */
enum err tiled_cache_stamp(const char *model_path, struct tiled_key *ret_stamp,
                           struct error *error) MUST_CHECK;

struct tiled_cache;

/* `key` is the stamp and all else that the tiled bytes follow from. NULL when the options name no
 * folder, or when the model's files have changed since the stamp. */
struct tiled_cache *tiled_cache_open(const struct tiled_cache_options *options,
                                     const struct tiled_key *key, struct pool *pool);
/* The section of that name, or NULL. A NULL cache has no section. */
const struct tiled_section *tiled_cache_find(const struct tiled_cache *cache, const char *name);
/* Adds `bytes` bytes at `at` to the sections that the file must have. They must stay until
 * tiled_cache_close. */
void tiled_cache_add(struct tiled_cache *cache, const char *name, const void *at, size_t bytes);
/* Called when all sections were added. Starts to write them, unless the file had all of them or the
 * model's files have changed. */
void tiled_cache_store(struct tiled_cache *cache);
/* True when the file had all sections that were added. */
bool tiled_cache_has_all(const struct tiled_cache *cache);
/* Waits up to a second for the writing to end, and then stops it. NULL is allowed. */
void tiled_cache_close(struct tiled_cache *cache);
