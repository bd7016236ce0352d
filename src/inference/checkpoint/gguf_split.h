/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gguf_split: the names of a model's parts, where it is cut into several GGUF files:
 * STEM-00001-of-00003.gguf, …
 *
 * The first part has the metadata; each part has tensors. It knows names only and opens nothing.
 *
 * Thread: any.
 * Memory: none. */

#include "base/str.h"

#include <limits.h>

#define GGUF_PARTS_MAX 1000u

struct gguf_part_name {
    unsigned part, parts; /* part is 1..parts */
    size_t stem_bytes;    /* bytes of the path in front of "-00001-of-00003.gguf" */
};

/* False for the name of a whole file. */
bool gguf_part_name(const char *path, struct gguf_part_name *ret_name);
/* The path of another part of the same model; false when it does not fit. */
bool gguf_part_path(const char *path, const struct gguf_part_name *name, unsigned part,
                    char ret_path[PATH_MAX]);
