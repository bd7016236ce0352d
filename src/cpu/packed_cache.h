/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* packed_cache: the packed weights of one model, kept in a folder from one load to the next.
 *
 * What a file of the folder (packed.h) has is used as it lies there, mapped; when it lacks anything
 * of what the model needs, all of it is written anew in the background, while the model runs. A
 * file that is damaged or not to be had is as none: the only cost is packing. The files' sizes and
 * times, the tensors' names, types and shapes, the kernels' table and the version of the packing
 * make the key, so that another model, CPU or release never gets the wrong bytes.
 *
 * Thread: one, and one of its own that writes.  Memory: owns the mapping; what packed_cache_find
 * gave lives until packed_cache_close. */

#include "cpu/packed.h"
#include "kernels/pool.h"

/* Zero, or a NULL dir, is no cache. */
struct packed_cache_options {
    const char *dir;         /* is there, and may be written to */
    uint64_t bytes_max;      /* of a file; 0: none is written, one that is there is used */
    const char *model_path;  /* the file, or the folder, that the model is read from */
    struct packed_key stamp; /* packed_cache_stamp of it, taken before the model was opened */
};

/* A hash of the files that a model is read from: identities and times of the file, or of all that
 * the folder has. Not of their bytes: those are as many as the model has. ERR_IO. */
enum err packed_cache_stamp(const char *model_path, struct packed_key *ret_stamp,
                            struct error *error) MUST_CHECK;

struct packed_cache;

/* NULL when the options say none, or the model's files have changed since the stamp. The key: the
 * stamp and all else that the packed bytes follow from. */
struct packed_cache *packed_cache_open(const struct packed_cache_options *options,
                                       const struct packed_key *key, struct pool *pool);
/* The section of that name, or NULL. A NULL cache has none. */
const struct packed_section *packed_cache_find(const struct packed_cache *cache, const char *name);
/* Says that `bytes` bytes at `at` belong into the file; they must stay until packed_cache_close. */
void packed_cache_add(struct packed_cache *cache, const char *name, const void *at, size_t bytes);
/* All was added. Starts to write, unless everything was found or the model's files have changed. */
void packed_cache_store(struct packed_cache *cache);
/* Whether everything was found. */
bool packed_cache_has_all(const struct packed_cache *cache);
/* Ends the writing, after a moment for what is nearly done. NULL is allowed. */
void packed_cache_close(struct packed_cache *cache);
