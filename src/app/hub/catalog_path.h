/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* catalog_path: paths in stores that others may write to.
 *
 * Links and names in a store are foreign: a path is used only after all its links were followed and
 * it was found to lie inside the store.
 *
 * Thread: any.
 * Memory: the caller's. */

#include "base/str.h"

#include <limits.h>

/* Bytes of the weights at a path: the size of a file, or the sum of a folder's .safetensors files;
 * 0 if the path does not exist. */
uint64_t catalog_bytes(const char *path);
/* Whether a name is the path of a file, or, with a '/' in it, of a folder. */
bool catalog_is_model_path(const char *name);

/* Whether a name from a file or a user may be one part of a path: letters, digits, '-', '_', '.',
 * not first a '.'; at most 128 bytes. */
bool catalog_is_part(struct str name);
/* Whether a text is that many hex digits, as sums and commits are: 0-9 and a-f. */
bool catalog_is_hex(struct str text, size_t digits);
/* The real path of a store's root; false if it is no folder. */
bool catalog_root(const char *path, char ret_root[PATH_MAX]);
/* Follows all links of `path`. False unless it ends at a file (a folder if `is_folder`) inside
 * `root`, which is real already. `ret_bytes`, the size, may be NULL. */
bool catalog_inside(const char *root, const char *path, bool is_folder, char ret_path[PATH_MAX],
                    uint64_t *ret_bytes);
/* Calls `entry` for those names of a folder that catalog_is_part takes, in order; at most
 * CATALOG_ENTRIES_MAX. */
#define CATALOG_ENTRIES_MAX 4096
void catalog_each(const char *folder, void (*entry)(void *context, const char *name),
                  void *context);
