/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* shards: the .safetensors files of a folder as one list of tensors: model.safetensors, or the
 * files that model.safetensors.index.json names.
 *
 * Thread: any; immutable after shards_open.
 * Memory: owns the files; everything that it hands out lives until shards_close.
 * Invariant: no two tensors have one name, and every file lies in the folder itself. */

#include "checkpoint/safetensors.h"

#include "base/map.h"

#define SHARDS_MAX 1024

struct shard_tensor {
    const struct safetensors *file; /* NULL: no such tensor exists */
    const struct safetensors_tensor *tensor;
};

struct shards {
    struct safetensors *files[SHARDS_MAX];
    size_t count;
    struct shard_tensor *tensors; /* (tensor_count) */
    size_t tensor_count;
    struct map by_name;
};

/* ERR_INVALID when the folder has neither of the two files, and, naming the file, for a file that
 * is not sound. */
enum err shards_open(struct shards *ret_shards, const char *folder, struct error *error) MUST_CHECK;
/* Opens one file over bytes of the caller, which must outlive it. */
enum err shards_open_bytes(struct shards *ret_shards, const void *bytes, size_t count,
                           struct error *error) MUST_CHECK;
void shards_close(struct shards *shards);

struct shard_tensor shards_find(const struct shards *shards, struct str name);
uint64_t shards_file_bytes(const struct shards *shards);
